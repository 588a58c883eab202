import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_table_and_tests_name_each_other() -> None:
    named = set(re.findall(r"`(test_\w+\.py::test_\w+)`", (ROOT / "docs/bad-input.md").read_text()))
    there = {
        f"{path.name}::{each.name}"
        for path in (ROOT / "tests/bad_input").glob("test_*.py")
        for each in ast.parse(path.read_text()).body
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    }
    assert named - there == set(), "named in docs/bad-input.md, but no such test"
    assert there - named == set(), "a test that docs/bad-input.md does not name"
