"""Commit log."""
