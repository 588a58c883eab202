"""Apache's own classes, asked line by line: see Oracle.java."""

import base64
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
PEER = HERE.parents[1] / "peer"
CACHE = Path.home() / ".cache" / "rocketpy-peer"
SOURCE = HERE / "java" / "Oracle.java"


def word(text: str) -> str:
    """A text as one word of a question."""
    return base64.b64encode(text.encode()).decode()


def ask(questions: Iterable[str]) -> list[str]:
    """Return one answer a question."""
    classes = CACHE / f"oracle-{zlib.crc32(SOURCE.read_bytes()):08x}"
    libraries = f"{CACHE / 'lib'}/*"
    if not (classes / "Oracle.class").exists():
        subprocess.run([str(PEER / "peer.sh"), "fetch"], check=True, capture_output=True)
        classes.mkdir(exist_ok=True)
        command = ["javac", "-nowarn", "-Xlint:none", "-cp", libraries, "-d", str(classes)]
        subprocess.run([*command, str(SOURCE)], check=True, capture_output=True)
    command = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    done = subprocess.run(
        [*command, "-cp", f"{classes}:{libraries}", "Oracle"],
        input="".join(question + "\n" for question in questions),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout.splitlines()
