"""Timed messages: delivered at any moment, to the millisecond where that can be."""
