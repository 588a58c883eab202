"""System topics."""
