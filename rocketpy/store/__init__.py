"""Commit log, consume queues and index on disk; no network, no event loop."""
