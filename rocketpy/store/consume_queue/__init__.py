"""Consume queues: entries that map queue offsets to positions in the commit log."""
