"""Apache RocketMQ again, in Python: the same wire, the same files, none of the JVM."""

__version__ = "0.1.0"
