"""File access of the store: mapped files, queues of them, JSON tables, descriptors."""
