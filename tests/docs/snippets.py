"""Code, commands and expected output in a page."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Snippet(NamedTuple):
    """Code block of a page.

    Attributes:
        language: `python` or `sh`.
        code: its text.
        output: what it prints, as the block of text after it says; None when none does.
        line: where it stands in the page.
    """

    language: str
    code: str
    output: str | None
    line: int


def snippets(page: Path) -> list[Snippet]:
    """Return the blocks of code of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    found: list[Snippet] = []
    for block in _BLOCK.finditer(text):
        language, code = block.groups()
        if language != "text":
            found.append(Snippet(language, code, None, text.count("\n", 0, block.start()) + 2))
        elif found and found[-1].output is None:
            found[-1] = found[-1]._replace(output=code)
    return found
