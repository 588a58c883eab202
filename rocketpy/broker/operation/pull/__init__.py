"""Pulls: permissions, filters, reading, and long polling."""
