"""This broker in its cluster: identity, name servers, routes."""
