"""Any text is a condition or an error with a position; any condition can be evaluated."""

from hypothesis import given
from hypothesis import strategies as st

from rocketpy.errors import ExpressionError
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.proto.trace import decode_traces, encode_trace
from rocketpy.sql92.condition import Condition

WORDS = st.sampled_from(
    ["a", "b", "NOT", "AND", "or", "(", ")", "=", "<>", ">", "<=", "'x'", "''", "'", "1", "2.5",
     "9L", "-", "+", "IS", "NULL", "IN", ",", "BETWEEN", "CONTAINS", "TRUE", "--", "/*", "*/"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=60).map(" ".join) | st.text(max_size=200)
VALUES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1
)
PROPERTIES = st.dictionaries(st.sampled_from(["a", "b", "ab", "A"]), VALUES)


@given(TEXTS, PROPERTIES)
def test_compile_condition_of_any_text_returns_or_names_the_position(
    text: str, properties: dict[str, str]
) -> None:
    try:
        condition = Condition(text)
    except ExpressionError as error:
        position = error.position
    else:
        position = 0
        taken = condition.matches(properties)
        assert condition.matches_stored(encode_properties(properties)) is taken
    assert 0 <= position <= len(text)


@given(st.binary(max_size=300))
def test_condition_matches_any_properties_without_error(stored: bytes) -> None:
    condition = Condition("a = 'x' OR b > 5 OR a IS NULL AND b CONTAINS 'y'")
    assert condition.matches_stored(stored) is condition.matches(parse_properties(stored))


@given(st.text(max_size=300) | st.lists(st.text(max_size=9)).map("\x01".join))
def test_decode_traces_of_any_text_does_not_raise(text: str) -> None:
    for record in decode_traces(text) + decode_traces(f"Pub\x01{text}\x02"):
        assert decode_traces(encode_trace(record))
