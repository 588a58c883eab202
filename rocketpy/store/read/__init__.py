"""Reading of queues: entries, messages, filters, limits, and caches of entries."""
