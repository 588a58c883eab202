"""One module a kind of request."""
