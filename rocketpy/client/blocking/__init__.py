"""Blocking."""
