"""Name server: routes from topics to brokers."""
