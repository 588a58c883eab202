"""Optional compiled modules: whether one is there, wanted, and made of the sources beside it.

An installation has no sources beside its compiled modules. A development tree has, and there a
module may be older than they are: it would be asked for what it does not know, or answer as the
sources of that time did. So each says what it was made of (its ``SOURCES``, see `checksum_of`), and
one that was made of others is left alone, as if it were not there.

`hatch_build.py` loads this file by its path: it needs nothing but the standard library.
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
    """Return a compiled module; None when it is not there or not wanted.

    Args:
        name: of the module, in full.

    Raises:
        ImportError: it is not there and ROCKETPY_COMPILED=1 says that it must be.
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
    """Return what stands for the text of a Cython source and all that it includes.

    Args:
        source: the ``.pyx``.

    Raises:
        OSError: one of them is not there.
    """
    text = source.read_bytes()
    included = (source.parent / os.fsdecode(name) for name in _INCLUDE.findall(text))
    # A hash of hashlib's would load 0.6 MiB, most of it OpenSSL's, into every server.
    return b"%08x" % zlib.crc32(b"".join([text, *(each.read_bytes() for each in included)]))


@functools.cache
def _outdated(module: ModuleType) -> str:
    """Return what is to be said of a module made of other sources; empty when it is not.

    What says that it was made of nothing in particular is a build that somebody made by hand.
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
    _log.warning("%s (until then Python takes its place)", told)
    return told
