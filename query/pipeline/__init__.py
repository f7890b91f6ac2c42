"""Aggregation stages, a file a family."""
