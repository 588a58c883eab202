"""Sends and send-backs: admission, put transforms, and the fast path for repeated properties."""
