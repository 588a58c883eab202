"""One connection: frames, channels, requests in progress, fair scheduling, budgets."""
