"""Requests of administration tools (mqadmin, consoles, exporters), grouped by subject."""
