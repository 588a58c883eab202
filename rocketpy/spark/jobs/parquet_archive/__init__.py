"""Parquet archive."""
