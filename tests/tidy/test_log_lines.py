"""Lines that libraries log with `key=%s` end in nothing else: they are fields in JSON lines."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from rocketpy.runtime.logs import fields_of

PACKAGE = Path(__file__).parents[2] / "rocketpy"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
OURS = {"event", "level", "logger", "timestamp", "exception"}
"""Keys that every line may have."""


def templates() -> Iterator[tuple[str, str]]:
    """Yield every text that is logged with its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in LEVELS or not node.args:
                continue
            text = node.args[-1] if len(node.args) == 1 else node.args[node.func.attr == "log"]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", text.value


def test_every_field_of_a_line_can_be_taken_from_it() -> None:
    found = {place: text for place, text in templates() if re.search(r"\w=%|%s=", text)}
    assert len(found) > 40
    wrong = []
    for place, text in found.items():
        names = re.findall(r"%\((\w+)\)", text)
        places = re.findall(r"%[sdr]|%\.\df", text)
        arguments = dict.fromkeys(names, 1) if names else (1,) * len(places)
        fields = fields_of(text, arguments)
        if fields is None or "=" in fields[0] or OURS & fields[1].keys():
            wrong.append((place, text))
        if not re.fullmatch(r"[^=]*: \w+=.*", text, re.DOTALL):
            wrong.append((place, f"no colon before the first field: {text}"))
    assert wrong == []
