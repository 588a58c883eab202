"""Consumer."""
