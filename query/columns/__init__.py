"""The column engine: stages over typed arrays."""
