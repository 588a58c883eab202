"""The broker: requests to the store and back."""
