"""Other databases that take part where they are installed."""
