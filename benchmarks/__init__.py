"""Benchmarks on TSBS-shaped data: `python -m benchmarks` starts a server, measures, and prints a table."""
