"""Programs that are handlers: `rocketpy.App` and `rocketpy run`."""
