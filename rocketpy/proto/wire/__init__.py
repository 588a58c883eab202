"""Frames and RemotingCommand: header serializations, JSON bodies, request templates."""
