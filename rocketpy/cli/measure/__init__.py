"""Loads, figures and plots of `rocketpy bench`."""
