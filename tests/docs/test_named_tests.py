"""Tests that the documents name exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(?:(?:\.\./)*tests/|\.\./)?((?:\w+/)+test_\w+\.py)(?:::(\w+))?`")


def test_tests_named_in_documents_exist() -> None:
    missing = []
    functions: dict[Path, set[str]] = {}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for path, name in NAMED.findall(page.read_text()):
            file = ROOT / "tests" / path
            if not file.exists():
                missing.append(f"{page.name}: {path}")
                continue
            if file not in functions:
                tree = ast.parse(file.read_text())
                functions[file] = {
                    each.name
                    for each in ast.walk(tree)
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                }
            if name and name not in functions[file]:
                missing.append(f"{page.name}: {path}::{name}")

    assert not missing
