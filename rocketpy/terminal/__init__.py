"""What commands share: options, tables, and faults as one sentence with an exit code.

The commands of `rocketpy.cli` and the jobs of `rocketpy.spark` stand on it.
"""
