"""Consume queue."""
