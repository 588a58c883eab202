"""Consumers of a group: push, pull, membership, rebalance, offsets."""
