"""Wire of replication: the classic protocol of Apache and RocketPy's pair protocol."""
