"""Shared parts of features that keep messages in system topics: reading, writing, progress."""
