"""Appending: writes records to the log, dispatches them, and flushes."""
