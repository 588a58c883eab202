"""Loader of optional compiled modules, with a check that they match the sources beside them.

An installation has no sources beside its compiled modules. A development tree has, and a module
there may be older than its sources and behave differently. So each module holds a checksum of its
sources (`SOURCES`, see `checksum_of`); a module of other sources is not loaded.

`hatch_build.py` loads this file by its path, so it imports the standard library only.
"""

import functools
import logging
import os
import re
import zlib
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

_log: Final = logging.getLogger(__name__)
_INCLUDE: Final = re.compile(rb'^include "([^"]+)"', re.MULTILINE)


def load_compiled(name: str) -> ModuleType | None:
    """Return a compiled module, or None if it does not exist or is disabled.

    Args:
        name: full name of the module.

    Raises:
        ImportError: it does not exist, and ROCKETPY_COMPILED=1 requires it.
    """
    if os.environ.get("ROCKETPY_PURE") == "1":
        return None
    is_needed = os.environ.get("ROCKETPY_COMPILED") == "1"
    try:
        module = import_module(name)
    except ImportError:
        if is_needed:
            raise
        return None
    outdated = _outdated(module)
    if outdated and is_needed:
        raise ImportError(outdated)
    return None if outdated else module


def checksum_of(source: Path) -> bytes:
    """Return a checksum of a Cython source and of all files that it includes.

    Args:
        source: the `.pyx`.

    Raises:
        OSError: one of them cannot be read.
    """
    text = source.read_bytes()
    included = (source.parent / os.fsdecode(name) for name in _INCLUDE.findall(text))
    # hashlib would load 0.6 MiB, mostly OpenSSL, into every server.
    return b"%08x" % zlib.crc32(b"".join([text, *(each.read_bytes() for each in included)]))


@functools.cache
def _outdated(module: ModuleType) -> str:
    """Return a warning about a module made from other sources; empty if it is up to date.

    A module without a checksum was built by hand and is accepted.
    """
    made_of = getattr(module, "SOURCES", None)
    name = module.__name__
    try:
        found = checksum_of(Path(module.__file__ or "").with_name(f"{name.rpartition('.')[2]}.pyx"))
    except OSError:  # an installation: no sources
        return ""
    if made_of in {b"", found}:
        return ""
    told = (
        f"{name} was compiled from other sources than those beside it: "
        "python -m pip install --no-deps -e ."
    )
    _log.warning("%s (until then the Python code is used)", told)
    return told
