"""Producer."""
