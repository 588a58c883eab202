"""Blocking classes of the client, derived from the asynchronous ones."""
