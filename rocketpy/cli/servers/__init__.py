"""Commands that run servers: broker, name server, both in one process."""
