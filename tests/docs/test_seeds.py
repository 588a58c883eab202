"""Every row of docs/SEEDS.md says where its line lives and which test proves it."""

import ast
import re
from functools import cache

import pytest

from tests.docs.seeds import ROOT, Row, named_tests, rows, skipped_tests

# Rows that nobody has filled yet. Whoever fills one takes it out; nothing is ever added.
OPEN: frozenset[str] = frozenset()
LINES = {"S0": 38, "S1": 67, "S2": 23, "S3": 19, "S4": 18}
NAMES = [f"{document}-{n:02}" for document, count in LINES.items() for n in range(1, count + 1)]


@cache
def functions(file: str) -> set[str]:
    """Names of the functions of a test file, without importing it."""
    path = ROOT / "tests" / file
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_no_line_of_the_documents_is_left_out() -> None:
    assert [row.name for row in rows()] == NAMES
    assert all(row.says for row in rows())


def test_list_of_open_rows_only_shrinks() -> None:
    empty = {row.name for row in rows() if row.is_empty}
    assert OPEN - empty == set(), "filled: take them out of OPEN"
    assert empty - OPEN == set(), "a row that was filled is empty again"


@pytest.mark.parametrize("row", [row for row in rows() if not row.is_empty], ids=lambda r: r.name)
def test_filled_row_is_whole_and_true(row: Row) -> None:
    assert row.modules, "names the modules, as `client/producer/producer.py`"
    assert row.tests, "names tests, as `tests/unit/test_errors.py::test_name`"
    assert row.decision, "says what was decided, or -"
    assert [each for each in row.modules if not (ROOT / "rocketpy" / each).exists()] == []
    assert [each for each in row.tests if each[1] not in functions(each[0])] == []
    left = row.proved_by.count("`tests/") - len(row.tests)
    assert left == 0, "a test that is named in another way"


def test_named_test_that_is_skipped_is_noticed() -> None:
    named = min(named_tests())
    other = "tests/docs/test_seeds.py::test_no_line_of_the_documents_is_left_out"
    assert skipped_tests([other, f"{named}[one]", f"{named}[two]"]) == [named]


def test_named_tests_are_in_every_run() -> None:
    """`make test` deselects those, which is no skip: it would leave a promise unchecked."""
    assert sorted(named_tests() & left_out_tests()) == []


def left_out_tests() -> set[str]:
    """Return the tests of the named files that are marked so, or are in modules marked so."""
    found = set()
    for file in {name.partition("::")[0] for name in named_tests()}:
        for node in ast.parse((ROOT / file).read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if any(is_mark(mark) for mark in node.decorator_list):
                    found.add(f"{file}::{node.name}")
            elif isinstance(node, ast.Assign) and is_mark(node):
                found |= {name for name in named_tests() if name.startswith(f"{file}::")}
    return found


def is_mark(node: ast.AST) -> bool:
    """Return whether a decorator or an assignment to `pytestmark` has such a mark."""
    return re.search(r"mark\.(long|alternate)\b", ast.unparse(node)) is not None
