"""Java programs of the tests, compiled once an edit of their sources."""

import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from tests.peer.apache import PEER

CACHE = Path.home() / ".cache" / "rocketpy-peer"
LIBRARIES = {"5.4.0": CACHE / "lib", "4.9.8": CACHE / "lib498"}
# A small JVM that compiles little: most of these processes live for seconds.
SMALL = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def compiled(name: str, sources: Sequence[Path], version: str = "5.4.0") -> str:
    """Return the class path of a program with one version of Apache's jars.

    Args:
        name: of the program.
        sources: its files.
        version: a key of `LIBRARIES`.
    """
    stamp = zlib.crc32(b"".join(source.read_bytes() for source in sources))
    classes = CACHE / f"{name}-{version}-{stamp:08x}-classes"
    if not classes.exists():
        subprocess.run(["bash", str(PEER), "fetch"], check=True, capture_output=True)
        # Who is interrupted leaves no half of the classes under their name.
        made = Path(tempfile.mkdtemp(dir=CACHE))
        command = ["javac", "-nowarn", "-Xlint:none", "-cp", f"{LIBRARIES[version]}/*"]
        subprocess.run(
            [*command, "-d", str(made), *map(str, sources)], check=True, capture_output=True
        )
        try:
            os.rename(made, classes)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return f"{classes}:{LIBRARIES[version]}/*"
