"""Results of conditions, and matching of stored messages."""

import pytest

from rocketpy.sql92 import condition
from rocketpy.sql92.condition import Condition, compile_condition


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    [
        ("dep_delay > 60 AND carrier = 'UA'", {"dep_delay": "61", "carrier": "UA"}, True),
        ("dep_delay > 60 AND carrier = 'UA'", {"dep_delay": "61", "carrier": "AA"}, False),
        ("a BETWEEN 3 AND 6", {"a": "6"}, True),
        ("a NOT BETWEEN 3 AND 6", {"a": "6"}, False),
        ("a IN ('x', 'it''s')", {"a": "it's"}, True),
        ("a NOT IN ('x')", {}, False),
        ("a IS NULL", {}, True),
        ("a IS NOT NULL", {"a": "1"}, True),
        ("region STARTSWITH 'eu'", {"region": "eu-west"}, True),
        ("region NOT ENDSWITH 'west'", {"region": "eu-west"}, False),
        ("name CONTAINS 'é'", {"name": "café"}, True),
        ("vip = TRUE", {"vip": "True"}, True),
        ("a > 1.5", {"a": "1e3"}, True),
        ("a > 5", {"a": "5.5"}, False),  # a whole number is compared with whole numbers only
        ("a > 5 OR b = 'x'", {"a": "no number", "b": "x"}, False),  # no result, so no match
        ("b = 'x' OR a > 5", {"a": "no number", "b": "x"}, True),
        ("a = b", {}, True),
        ("not (a = 1) -- a comment\n", {"a": "2"}, True),
        ("a > 5 /* or b */ AND b = '1'", {"a": "6", "b": "1"}, True),
    ],
)
def test_condition_evaluate_of_properties(
    expression: str, properties: dict[str, str], expected: bool
) -> None:
    assert compile_condition(expression).matches(properties) is expected


def test_only_what_is_mentioned_is_read_of_the_stored_properties() -> None:
    both = Condition("a = '1' AND b = '2'")
    assert both.names == {"a", "b"}
    assert both.matches_stored(b"aa\x019\x02a\x011\x02ba\x013\x02b\x012\x02")
    assert both.matches_stored(b"a\x019\x02b\x012\x02a\x011"), "the last one counts"
    assert not both.matches_stored(b"c\x01a\x01\x02b\x012\x02")
    assert both.matches_stored(b"a\x011\x02b\x012\x02a\x01\x02"), "no value is none at all"
    assert not both.matches_stored(b"")


def test_remembered_answers_are_those_of_the_values() -> None:
    one, other = Condition("a > 5 AND b IS NULL"), Condition("a <= 5 AND b IS NULL")
    for _ in range(2):  # computed and cached
        for number in range(3_000):
            stored = b"UNIQ_KEY\x01%d\x02a\x01%d\x02" % (number, number)
            assert one.matches_stored(stored) is (number > 5)
            assert other.matches_stored(stored) is (number <= 5)
            assert not one.matches_stored(stored + b"b\x01%d\x02" % number)
            assert len(condition._answers) <= 4_096
    assert not one.matches_stored(b"a\x01" + b"9" * 500 + b"\x02"), "no whole number"
    assert b"9" * 500 not in {value for _, values in condition._answers for value in values}


def test_values_cut_out_of_many_messages_are_matched_as_the_messages_are() -> None:
    one = Condition("b > 5 AND a IS NULL")
    assert one.stored_names == (b"a", b"b")
    rows = [(b"", b"%d" % number) for number in range(20)] + [(b"1", b"9"), (b"", b"")]
    computed, remembered = one.match_values(rows), one.match_values(rows)
    stored = [b"a\x01%b\x02b\x01%b\x02" % row for row in rows]
    assert computed == remembered == [one.matches_stored(each) for each in stored]
    assert sum(computed) == 14
    assert one.match_values([]) == []


@pytest.mark.parametrize(("operands", "weight"), [(1, 1), (16, 1), (17, 2), (512, 32)])
def test_condition_weighs_what_it_costs(operands: int, weight: int) -> None:
    pairs = ["a = 1"] * (operands // 2) + ["a IS NULL"] * (operands % 2)
    assert Condition(" OR ".join(pairs)).weight == weight
