"""Aggregation expressions: parsed once into a tree, compiled to a closure."""
