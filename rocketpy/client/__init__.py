"""The client side: producers, consumers, and the instance that connects them to a cluster."""
