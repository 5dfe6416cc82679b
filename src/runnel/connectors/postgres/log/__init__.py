"""The bytes of logical decoding (plugin `pgoutput`, protocol 1) as messages; it knows no server."""
