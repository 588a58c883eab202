"""Bytes to values and back: no I/O, no clock, no threads."""
