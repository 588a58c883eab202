"""Remoting protocol: frames, commands, header serializations, JSON bodies, codes."""
