"""Typed request and response headers, one module a concern; `base` is what they share."""
