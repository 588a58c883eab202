"""In-process clusters, simulated clock and files, for our tests and yours."""
