"""The command line `rocketpy`."""

from rocketpy.installation import require_own_package

require_own_package()
