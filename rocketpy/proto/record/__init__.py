"""Stored records: layout, checks, properties, compression, batches, message ids."""
