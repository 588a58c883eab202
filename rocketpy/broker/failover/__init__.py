"""Fail-over: a broker of a group whose master is elected by a controller."""
