"""Slave acting master: the slave with the lowest id replaces a lost master, without its sends."""
