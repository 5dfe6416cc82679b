"""What targets that speak SQL have in common: the rows that are sent, nested values as JSON, tables held against views."""
