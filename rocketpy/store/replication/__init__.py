"""What replication needs of the store: identity, parts of the log, copies of the directory."""
