"""Records of the commit log, or of a pull response's body, as Arrow record batches.

Vectorised with numpy and pyarrow (the extra `rocketpy[spark]`): no Python for each row. Bytes in,
batches out: files are the store's, sockets the client's.
"""
