"""The requests of operators' tools (mqadmin, consoles, exporters), one module a concern."""
