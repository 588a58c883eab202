"""Messages as the application sees them, send options, serializers."""
