"""The state: a DuckLake of Parquet files and a SQL catalog, in which one transaction publishes one epoch."""
