"""Configuration: typed options, Apache's properties files, and changes at run time."""
