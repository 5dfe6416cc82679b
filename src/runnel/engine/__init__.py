"""Runs delta programs: on Spark for users, on DuckDB where tests want thousands of runs a minute."""
