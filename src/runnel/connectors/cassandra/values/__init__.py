"""CQL types and values: their tree, their bytes, their text, their order and when two of them are equal."""
