"""Clock, services, configuration and logging, for all processes and below all protocols."""
