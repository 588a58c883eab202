"""Clock, services, configuration and logging: what every process needs and no protocol knows."""
