"""Archive of topics as Parquet files: files, manifests, compaction, and the writing source."""
