"""Connections: frames, channels, requests in progress, fair scheduling, budgets."""
