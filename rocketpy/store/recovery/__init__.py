"""Recovery of a store at its start: log scan, queue entries, index, missing files."""
