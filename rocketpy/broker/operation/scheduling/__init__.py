"""Scheduling of messages for later delivery, and recalls of timed messages."""
