"""Decides when, in what order and what to redo: transactions, epochs, view definitions, upkeep, the long-running job."""
