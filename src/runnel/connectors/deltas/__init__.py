"""Deltas, the common output of change data capture: what they are, how they are written, and how techniques are run in cycles."""
