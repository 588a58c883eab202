"""Applications made of message handlers: `rocketpy.App` and `rocketpy run`."""
