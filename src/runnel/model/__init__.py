"""The words of runnel as frozen data: types, columns, relations, deltas, programs, epochs. No Spark, no I/O."""
