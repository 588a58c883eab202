"""Timed messages: delivered at any time, to the millisecond."""
