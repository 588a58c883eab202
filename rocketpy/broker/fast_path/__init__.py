"""Compiled fast path of sends, pulls and due messages; the operations are its reference."""
