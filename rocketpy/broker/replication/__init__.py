"""Replication: the HA port of a master, the connection of a slave, and their protocols."""
