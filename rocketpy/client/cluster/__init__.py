"""Connections to a cluster: routes, name servers, broker requests."""
