"""A single send: state machine, in-flight window, queue selection, transport."""
