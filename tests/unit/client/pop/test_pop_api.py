"""Responses to pops, and the handles that settle messages."""

from typing import Any

import pytest

from rocketpy.client.pop.pop_api import PopRequests, PopStatus, place_of, pop_result
from rocketpy.errors import BadBodyError, BrokerError
from rocketpy.proto.bodies.lock import QueryAssignmentRequestBody
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response

FIELDS = {"popTime": "1000", "invisibleTime": "60000", "reviveQid": "3", "restNum": "0"}


def stored(offset: int, queue_id: int = 2, **properties: str) -> bytes:
    message = MessageExt(
        topic="T",
        queue_id=queue_id,
        queue_offset=offset,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        body=b"%d" % offset,
    )
    return encode_message(message, properties=encode_properties(properties))


def response(code: int = 0, body: bytes = b"", **fields: str) -> RemotingCommand:
    return make_response(make_request(200050), code, "remark", {**FIELDS, **fields}, body)


def test_popped_message_gets_its_handle() -> None:
    found = pop_result(
        response(body=stored(3) + stored(5), startOffsetInfo="0 2 3", msgOffsetInfo="0 2 3,5"), "b"
    )
    assert found.status is PopStatus.FOUND
    assert [one.properties["POP_CK"] for one in found.messages] == [
        "3 1000 60000 3 0 b 2 3",
        "3 1000 60000 3 0 b 2 5",
    ]
    assert found.messages[0].properties["1ST_POP_TIME"] == "1000"
    place = place_of("g", found.messages[1])
    assert (place.topic, place.handle.queue_offset) == ("T", 5)


def test_retried_message_brings_its_own() -> None:
    own = "7 900 60000 3 1 b 0 7"
    found = pop_result(response(body=stored(7, 0, POP_CK=own)), "b")
    assert found.messages[0].properties["POP_CK"] == own
    assert place_of("g", found.messages[0]).topic == "%RETRY%g_T"


def test_in_order_the_broker_counts_deliveries() -> None:
    both = stored(3) + stored(4)
    counts = "0 qo2%3 4;0 2 0"
    found = pop_result(response(body=both, startOffsetInfo="0 2 3", orderCountInfo=counts), "b")
    assert [one.reconsume_times for one in found.messages] == [4, 0]


@pytest.mark.parametrize(
    ("code", "status"),
    [(209, PopStatus.FULL), (210, PopStatus.NOTHING), (19, PopStatus.NOTHING)],
)
def test_codes_of_a_pop_without_messages(code: int, status: PopStatus) -> None:
    assert pop_result(response(code), "b").status is status


def test_unexpected_pop_response_code_raises() -> None:
    with pytest.raises(BrokerError):
        pop_result(response(17), "b")
    for starts in ("0 1 3", "x", ""):
        with pytest.raises(BadBodyError):
            pop_result(response(body=stored(3), startOffsetInfo=starts), "b")
    with pytest.raises(BadBodyError):
        place_of("g", MessageExt(topic="T"))
    with pytest.raises(BadBodyError):
        place_of("g", MessageExt(topic="T", properties={"POP_CK": "1 2 3 4 9 b 1 1"}))


class Broker:
    """A remoting client whose broker answers with what it is given."""

    def __init__(self, *responses: RemotingCommand) -> None:
        self.responses = list(responses)
        self.requests: list[RemotingCommand] = []

    async def invoke(self, _address: str, request: RemotingCommand, _ms: int) -> RemotingCommand:
        self.requests.append(request)
        return self.responses.pop(0)


def requests_of(*responses: RemotingCommand) -> tuple[PopRequests, Broker]:
    broker: Any = Broker(*responses)
    return PopRequests(broker), broker


async def test_changed_message_has_a_new_handle() -> None:
    found = pop_result(response(body=stored(3) + stored(5), startOffsetInfo="0 2 3"), "b")
    place = place_of("g", found.messages[1])
    requests, broker = requests_of(
        make_response(
            make_request(200053),
            ext_fields={"popTime": "2000", "invisibleTime": "500", "reviveQid": "3"},
        ),
        make_response(make_request(200051)),
    )
    changed = await requests.change_invisible("a:1", place, 500)
    assert changed.handle.text() == "5 2000 500 3 0 b 2 5", "alone in a check point of its own"
    await requests.ack("a:1", changed)
    assert broker.requests[1].ext_fields["extraInfo"] == changed.handle.text()
    assert broker.requests[1].ext_fields["offset"] == "5"


async def test_assignment_names_what_is_popped() -> None:
    entries = b'{"messageQueue":{"brokerName":"b","queueId":-1,"topic":"T"},"mode":"POP"}'
    other = entries.replace(b"POP", b"PULL")
    bodies = [b"{}", b'{"messageQueueAssignments":[]}']
    bodies += [b'{"messageQueueAssignments":[%b,%b]}' % (entries, one) for one in (entries, other)]
    answers = [make_response(make_request(400), body=body) for body in bodies]
    requests, _ = requests_of(*answers)
    body = QueryAssignmentRequestBody("T", "g", "c", "AVG")
    found = [await requests.assignment("a:1", body, 100) for _ in bodies]
    assert found == [None, [], [("T", "b", -1)], [("T", "b", -1)]]
