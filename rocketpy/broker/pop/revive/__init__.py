"""Redelivery of popped messages that were not acked: the revive topic and its reader."""
