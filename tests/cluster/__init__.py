"""The pipeline on a Spark cluster, at the sizes that one machine's memory does not hold: `python -m tests.cluster NAME`.

Each check has one command. It starts a standalone cluster of two workers on loopback, a PostgreSQL for the catalog and, where it
needs one, a Cassandra; makes its data; runs a driver of its own process; prints a short table; and ends with 1 where a bound or an
equality does not hold. Speeds are printed, and only with `--ratio` asserted: they depend on what else the machine does.
"""
