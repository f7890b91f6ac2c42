"""Accumulators, by what they do: sums, statistics, choices, collections."""
