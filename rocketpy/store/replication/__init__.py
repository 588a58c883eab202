"""Replication in the store: identity and parts of the log, copies of the directory."""
