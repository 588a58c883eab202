"""Message index: files that map message keys to positions in the commit log."""
