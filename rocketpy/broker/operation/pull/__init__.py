"""Pull."""
