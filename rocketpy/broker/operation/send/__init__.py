"""Send."""
