"""Message filters: by tags or SQL92 conditions, and the persistent filters of groups."""
