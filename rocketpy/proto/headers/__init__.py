"""Typed request and response headers, one module a concern."""
