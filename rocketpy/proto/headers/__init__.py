"""Typed request and response headers, one module for each concern, based on `base`."""
