"""Stored records: layout, decoding, checks, batches, properties, ids and compression."""
