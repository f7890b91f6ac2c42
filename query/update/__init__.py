"""Update documents: parsed once, applied to documents."""
