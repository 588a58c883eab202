"""Statistics of the broker: counters with time windows, and numbers of waiting messages."""
