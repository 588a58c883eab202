"""Whether extension modules can be compiled here."""

import os
import shlex
import shutil
import sysconfig
from pathlib import Path


def compiler() -> list[str] | None:
    """The command that compiles C for this interpreter; None without it or without headers."""
    text = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = shlex.split(text)
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return command if shutil.which(command[0]) and headers.exists() else None
