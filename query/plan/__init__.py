"""Plans: candidate index bounds, the nodes that run them, and their explanation."""
