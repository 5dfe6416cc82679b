"""The six techniques of change data capture, what they need in the store, and how their deltas are written."""
