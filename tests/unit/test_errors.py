"""Every failure code becomes one error that says whether to try again."""

import copy
import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import rocketpy
from rocketpy import errors
from rocketpy.errors import BrokerError, RequestTimeoutError, RocketPyError, TopicNotExistError


def all_errors() -> list[type[RocketPyError]]:
    return [
        one
        for one in vars(errors).values()
        if inspect.isclass(one) and issubclass(one, RocketPyError)
    ]


def test_errors_are_public_and_derive_from_one_root() -> None:
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
def test_code_has_its_class_and_keeps_its_remark(code: int, name: str, retriable: bool) -> None:
    error = BrokerError.from_code(code, "because")
    assert (type(error).__name__, error.code, error.remark) == (name, code, "because")
    assert error.retriable is retriable
    assert "because" in str(error)


def test_code_stands_for_one_class() -> None:
    with pytest.raises(AssertionError):

        class SecondError(BrokerError, code=17):
            pass

    assert type(BrokerError.from_code(17, None)) is TopicNotExistError


ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "FrameTooLongError": ((9, 4, "TLS"), {}),
    "HeaderFieldError": (("topic", "is required"), {}),
    "ExpressionError": (("a number is missing", 3), {}),
    "ConnectError": (("refused",), {"retry_in_ms": 500}),
    "NotSentError": (("closed",), {"retriable": False}),
    "RemoteError": (("ValueError", "no price"), {}),
    "PartlySentError": (([],), {"stored": 0, "error": RequestTimeoutError("late")}),
    "ServersFailedError": (({"broker-a": 1}, {"broker-b": RequestTimeoutError("late")}), {}),
    "CorruptRecordError": ((4096, "its checksum differs"), {}),
    "LogGapError": ((8, 16), {}),
    "QueueGapError": ((8, 16), {}),
    "ConfigError": (("is no number",), {"source": "broker.conf", "line": 3, "key": "listenPort"}),
}


def example(kind: type[RocketPyError]) -> RocketPyError:
    if issubclass(kind, BrokerError):
        return kind(16, "read only")
    arguments, options = ARGUMENTS.get(kind.__name__, (("because",), {}))
    return kind(*arguments, **options)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickle_with_its_notes(kind: type[RocketPyError]) -> None:
    error = example(kind)
    error.add_note("attempt 1 on broker-a: refused")

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert again.args == error.args
        assert again.__notes__ == ["attempt 1 on broker-a: refused"]
        assert again.retriable is error.retriable
        state = {name: repr(value) for name, value in vars(error).items()}
        assert {name: repr(value) for name, value in vars(again).items()} == state


@pytest.mark.parametrize("order", [rocketpy.Retry(3), rocketpy.ToDLQ("never")], ids=repr)
def test_retry_and_to_dlq_survive_pickle(order: Exception) -> None:
    again = pickle.loads(pickle.dumps(order))
    assert type(again) is type(order)
    assert vars(again) == vars(order)
    assert str(again) == str(order)


def fail() -> None:
    raise BrokerError.from_code(16, "read only")


def test_process_pool_survives_an_error() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(errors.NoPermissionError, match="read only") as caught:
            pool.submit(fail).result(60)
        assert caught.value.code == 16
        assert pool.submit(len, "abc").result(60) == 3


def test_broker_error_keeps_the_start_of_a_long_remark() -> None:
    error = BrokerError.from_code(1, "because" * 1_000_000)
    assert error.remark == ("because" * 1_000)[:4_096]
    assert len(str(error)) < 5_000
