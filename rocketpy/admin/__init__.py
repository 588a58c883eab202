"""The operations of mqadmin as methods."""
