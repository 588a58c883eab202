"""Long polling."""
