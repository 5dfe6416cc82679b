"""Reads Cassandra's commit log, versions 6, 7 and 8 of its format, without a server."""
