"""Command line: `rocketpy` and the commands that run servers."""

from rocketpy.installation import require_own_package

require_own_package()
