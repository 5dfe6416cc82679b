"""Tables as the server defines them: from its own rows, from CQL text, and the columns that runnel adds."""
