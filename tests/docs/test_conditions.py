"""Statements of the guide about SQL92 conditions hold."""

import re

import pytest

from rocketpy.errors import ExpressionError
from rocketpy.sql92.condition import compile_condition
from tests.docs.snippets import GUIDE

SECTION = (
    (GUIDE / "consuming.md")
    .read_text(encoding="utf-8")
    .partition("### Filter conditions\n")[2]
    .partition("\n## ")[0]
)
ROWS = [line.split("|")[1] for line in SECTION.splitlines() if line.startswith("| `")]
CONDITIONS = [each for row in ROWS for each in re.findall(r"`([^`]+)`", row)]
[REFUSED] = [line for line in SECTION.splitlines() if line.startswith("- Refused")]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_condition_of_the_table_is_one(condition: str) -> None:
    compile_condition(condition)


def test_condition_listed_as_invalid_is_rejected() -> None:
    found = re.findall(r"`([^`]+)`", REFUSED.partition(" Apache ignores")[0])
    assert len(found) == 8
    for text in found:
        with pytest.raises(ExpressionError):
            compile_condition(text)


@pytest.mark.parametrize(
    ("condition", "takes"),
    [
        ("amount > 100", True),
        ("amount BETWEEN 150 AND 150", True),
        ("amount = 150 AND amount = '150'", True),
        ("paid = true", True),
        ("TAGS = 'a' AND KEYS = 'k'", True),
        ("region = 'EU'", False),
        ("region > 1 OR region <= 1", False),
        ("name = 'it''s' /* said */", True),
        ("none = 'a'", False),
        ("none <> 'a'", False),
        ("none NOT IN ('a')", False),
        ("none NOT CONTAINS 'a'", False),
        ("NOT (none = 'a')", False),
        ("none IS NULL", True),
        ("region = 'eu' OR region = 'us' AND amount < 0", True),
    ],
)
def test_condition_listed_as_valid_is_accepted(condition: str, takes: bool) -> None:
    headers = {"amount": "150", "region": "eu", "name": "it's", "paid": "true"}
    found = compile_condition(condition)
    assert found.matches({**headers, "TAGS": "a", "KEYS": "k"}) is takes


@pytest.mark.parametrize(
    ("condition", "headers", "takes"),
    [
        ("region = eu", {}, True),
        ("region = eu", {"region": "eu"}, False),
        ("region <> eu", {"region": "eu"}, True),
        ("region <> eu", {"eu": "x"}, False),
        ("region <> eu", {}, False),
    ],
)
def test_word_without_quotes_is_a_property(
    condition: str, headers: dict[str, str], *, takes: bool
) -> None:
    assert compile_condition(condition).matches(headers) is takes


@pytest.mark.parametrize(
    ("condition", "amount", "takes"),
    [
        ("amount > 5", "2147483647", True),
        ("amount > 5", "2147483648", False),
        ("amount > 5", "7.5", False),
        ("amount > 5.0", "2147483648", True),
        ("amount > 5.0", "7.5", True),
        ("amount = TRUE", "true", True),
        ("TRUE = amount", "true", False),
    ],
)
def test_property_is_read_as_the_kind_of_number_beside_it(
    condition: str, amount: str, *, takes: bool
) -> None:
    assert compile_condition(condition).matches({"amount": amount}) is takes


def test_not_binds_closer_than_a_comparison() -> None:
    with pytest.raises(ExpressionError):
        compile_condition("NOT amount > 1")
