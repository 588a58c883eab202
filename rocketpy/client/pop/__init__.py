"""Pop consumer: pops, acks, and messages that are invisible to other consumers."""
