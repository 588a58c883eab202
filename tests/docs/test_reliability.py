"""Every test that docs/RELIABILITY.md names exists, and every promise names one."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "RELIABILITY.md").read_text()
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_named_test_exists() -> None:
    missing = []
    for file, name in NAMED.findall(PAGE):
        tree = ast.parse((ROOT / "tests" / file).read_text())
        functions = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        if name not in functions:
            missing.append(f"{file}::{name}")

    assert missing == []


def test_every_promise_and_budget_names_a_test() -> None:
    promises = re.findall(r"^\| (\d+) \|(.*)$", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in promises] == list(range(1, 17))
    unshown = [n for n, row in promises if not NAMED.search(row) and "table of budgets" not in row]
    budgets = PAGE.split("## Budgets of memory")[1].split("## ")[0]
    rows = [row for row in budgets.splitlines() if row.startswith("| ")][1:]

    assert unshown == []
    assert rows
    assert all(NAMED.search(row) for row in rows)
