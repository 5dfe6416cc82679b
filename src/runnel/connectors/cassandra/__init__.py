"""Reads the changes of Apache Cassandra tables."""
