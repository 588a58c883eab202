"""Ours beside the real Apache broker: same machine, same run, same Java driver, ratios."""
