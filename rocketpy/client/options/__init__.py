"""Validation of options: keyword options, durations, types."""
