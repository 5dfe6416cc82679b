"""Benchmarks of change data capture: six techniques against a real server, and how fast a log is decoded."""
