"""Listening and connecting: sockets, TLS, protocol detection, selectors, admission."""
