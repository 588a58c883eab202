"""Every failure code becomes one error that says whether to try again."""

import inspect

import pytest

from rocketpy import errors
from rocketpy.errors import BrokerError, RequestTimeoutError, RocketPyError, TopicNotExistError


def all_errors() -> list[type[RocketPyError]]:
    return [
        one
        for one in vars(errors).values()
        if inspect.isclass(one) and issubclass(one, RocketPyError)
    ]


def test_everything_that_is_raised_is_public_and_in_one_tree() -> None:
    assert sorted(errors.__all__) == sorted(one.__name__ for one in all_errors())
    assert issubclass(RequestTimeoutError, TimeoutError)


@pytest.mark.parametrize(
    ("code", "name", "retriable"),
    [
        (1, "SystemFaultError", True),
        (2, "FlowControlError", True),
        (13, "MessageIllegalError", False),
        (17, "TopicNotExistError", False),
        (26, "SubscriptionGroupNotExistError", False),
        (215, "FlowControlError", True),
        (530, "FlowControlError", True),
        (42900, "FlowControlError", True),
        (4711, "BrokerError", False),
    ],
)
def test_a_code_has_its_class_and_keeps_its_remark(code: int, name: str, retriable: bool) -> None:
    error = BrokerError.from_code(code, "because")
    assert (type(error).__name__, error.code, error.remark) == (name, code, "because")
    assert error.retriable is retriable
    assert "because" in str(error)


def test_a_code_stands_for_one_class() -> None:
    with pytest.raises(AssertionError):

        class SecondError(BrokerError, code=17):
            pass

    assert type(BrokerError.from_code(17, None)) is TopicNotExistError
