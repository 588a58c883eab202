"""Sockets, loops and pools: requests in, responses out."""
