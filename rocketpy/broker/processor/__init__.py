"""Request processors: adapters from remoting requests to operations, by kind of request."""
