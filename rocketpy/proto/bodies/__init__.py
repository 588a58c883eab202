"""Typed bodies, one module a concern."""
