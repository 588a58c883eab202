"""Encoding and decoding of the wire and of records, without I/O, clock or threads."""
