"""Configuration: properties files, typed values, known Apache keys, live changes."""
