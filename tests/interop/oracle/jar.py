"""Apache's own classes, asked line by line: see Oracle.java."""

import base64
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.peer.classes import SMALL, compiled

SOURCE = Path(__file__).parent / "java" / "Oracle.java"


def word(text: str) -> str:
    """A text as one word of a question."""
    return base64.b64encode(text.encode()).decode()


def ask(questions: Iterable[str]) -> list[str]:
    """Return one answer a question."""
    done = subprocess.run(
        ["java", *SMALL, "-cp", compiled("oracle", [SOURCE]), "Oracle"],
        input="".join(question + "\n" for question in questions),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout.splitlines()
