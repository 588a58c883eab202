"""Common parts of commands: options, tables, and errors as one sentence with an exit code.

Used by the commands of `rocketpy.cli` and the jobs of `rocketpy.spark`.
"""
