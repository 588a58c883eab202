"""structlog, imported as where rich is not installed: for daemons, which print plain tracebacks.

structlog imports rich wherever it is, for tracebacks in colour: 4 MiB of an idle server's memory
and a sixth of its start. Who imports rich later gets it, and who had it before keeps it.
"""

import sys
from typing import Any, cast

__all__ = ["structlog"]

_comes_with_it = not {"rich", "structlog"} & sys.modules.keys()
if _comes_with_it:
    sys.modules["rich"] = cast("Any", None)  # an import of it fails
try:
    import structlog
finally:
    if _comes_with_it:
        del sys.modules["rich"]
