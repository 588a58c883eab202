"""Pulling."""
