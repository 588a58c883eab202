"""Delay levels: messages that are delivered a fixed time after they were stored."""
