"""Tables of Cassandra that follow views."""
