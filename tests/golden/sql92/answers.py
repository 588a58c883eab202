"""RocketPy's result of a case, as a letter of Oracle.java."""

from rocketpy.errors import ExpressionError
from rocketpy.proto.record.properties import encode_properties
from rocketpy.sql92.condition import Condition
from rocketpy.sql92.java_values import MismatchError

_LETTERS = {True: "T", False: "F", None: "N"}


def answer(expression: str, properties: dict[str, str]) -> str:
    """Return E for an invalid condition, X without a result, else T, F or N."""
    given = {name: value for name, value in properties.items() if value}
    try:
        condition = Condition(expression)
    except ExpressionError as error:
        return "E" if 0 <= error.position <= len(expression) else "outside"
    try:
        value = condition.evaluate(given)
    except MismatchError:
        letter = "X"
    else:
        assert value is None or isinstance(value, bool)
        letter = _LETTERS[value]
    assert condition.matches(given) is (letter == "T")
    assert condition.matches_stored(encode_properties(given)) is (letter == "T")
    return letter
