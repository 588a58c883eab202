"""Reads docs/SEEDS.md: one row a line of the design documents."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "SEEDS.md"
_ROW = re.compile(r"^\| (S\d-\d\d) \|(.*)\|$", re.MULTILINE)
_CELL = re.compile(r"(?<!\\)\|")
_MODULE = re.compile(r"`([\w/]+\.py)`")
_TEST = re.compile(r"`tests/([\w/]+\.py)::(test_\w+)`")


class Row(NamedTuple):
    """Line of a design document, with its status and test."""

    name: str
    says: str
    where: str
    proved_by: str
    decision: str

    @property
    def is_empty(self) -> bool:
        """Whether the line is still open."""
        return not (self.where or self.proved_by or self.decision)

    @property
    def modules(self) -> list[str]:
        """Modules under rocketpy/ that the row names."""
        return _MODULE.findall(self.where)

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Tests that the row names: file under tests/, function."""
        return _TEST.findall(self.proved_by)


def rows() -> list[Row]:
    """Return the page's rows, in its order."""
    found = []
    for name, rest in _ROW.findall(PAGE.read_text()):
        cells = [cell.strip() for cell in _CELL.split(rest)]
        assert len(cells) == 4, f"{name} has {len(cells) + 1} cells, not 5"
        found.append(Row(name, *cells))
    return found


def named_tests() -> set[str]:
    """Return every test that a row names, as pytest writes it without parameters."""
    return {f"tests/{file}::{test}" for row in rows() for file, test in row.tests}


def skipped_tests(node_ids: list[str]) -> list[str]:
    """Return which of these tests, given with their parameters, rows name."""
    named = named_tests()
    return sorted({name for name in (each.partition("[")[0] for each in node_ids) if name in named})
