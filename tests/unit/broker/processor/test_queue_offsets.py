"""Requests for the ends of queues."""

from typing import Any

import pytest

from rocketpy.broker.processor.queue_offsets import OffsetProcessor
from rocketpy.errors import HeaderFieldError
from tests.unit.broker.fakes import FakeChannel, FakeStore, request


@pytest.mark.parametrize(
    ("code", "ext", "expected"),
    [
        (29, {"timestamp": "5"}, {"offset": "11"}),
        (29, {"timestamp": "5", "boundaryType": "lower"}, {"offset": "11"}),
        (29, {"timestamp": "5", "boundaryType": "UPPER"}, {"offset": "17"}),
        (30, {"committed": "true"}, {"offset": "9"}),
        (31, {}, {"offset": "0"}),
        (32, {}, {"timestamp": "-1"}),
    ],
)
def test_queue_offsets_return_ends(
    code: int, ext: dict[str, str], expected: dict[str, str]
) -> None:
    store = FakeStore()
    store.ends["T", 2] = 9
    run: Any = OffsetProcessor(store).processors[code]
    response = run(FakeChannel(), request(code, {"topic": "T", "queueId": "2", **ext}))
    assert (response.code, response.ext_fields) == (0, expected)


def test_queue_offsets_wrong_field_is_named() -> None:
    run: Any = OffsetProcessor(FakeStore()).processors[30]
    with pytest.raises(HeaderFieldError, match="queueId"):
        run(FakeChannel(), request(30, {"topic": "T", "queueId": "x"}))
