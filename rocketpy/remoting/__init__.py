"""Sockets, loops and pools: requests in, answers out."""
