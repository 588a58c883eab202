"""Commit log: the files that hold every message, damaged records, and prefetching."""
