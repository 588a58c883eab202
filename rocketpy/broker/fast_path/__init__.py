"""Fast path."""
