"""Revive."""
