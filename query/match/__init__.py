"""Filters: parsed once into a tree, compiled to a closure."""
