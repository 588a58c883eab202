"""What ``rocketpy bench`` counts, runs and draws."""
