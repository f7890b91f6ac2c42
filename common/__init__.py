"""THE GROUND: no input or output."""
