from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.connection.requests_in_progress import RequestsInProgress, request_bytes


def commands(*opaques: int) -> list[RemotingCommand]:
    made = []
    for opaque in opaques:
        made.append(make_request(1))
        made[-1].opaque = opaque
    return made


def test_requests_in_progress_are_full_from_limit_to_three_quarters() -> None:
    in_hand = RequestsInProgress(8, 0)
    in_hand.add(7, 0)
    assert not in_hand.is_full
    in_hand.add(1, 0)
    assert in_hand.is_full
    in_hand.add(-1, 0)
    assert in_hand.is_full
    in_hand.add(-1, 0)
    assert not in_hand.is_full


def test_requests_in_progress_are_full_by_size() -> None:
    in_hand = RequestsInProgress(0, 1000)
    in_hand.add(1, 1000)
    assert in_hand.is_full
    in_hand.add(-1, -200)
    assert in_hand.is_full
    in_hand.add(0, -100)
    assert not in_hand.is_full


def test_requests_in_progress_with_one_limit_only() -> None:
    in_hand = RequestsInProgress(1, 0)
    in_hand.add(1, 10)
    in_hand.add(-1, -10)
    assert not in_hand.is_full


def test_suspended_requests_resume_in_order_of_arrival() -> None:
    in_hand = RequestsInProgress(0, 0)
    first, second, third = in_hand.number(), in_hand.number(), in_hand.number()
    in_hand.suspend(third, commands(4), 0)
    in_hand.suspend(first, commands(0, 1), 0)
    in_hand.suspend(second, commands(2, 3), 0)
    in_hand.is_stopped = True
    assert in_hand.suspended_bytes > 0
    assert [command.opaque for command in in_hand.take_suspended().commands] == [0, 1, 2, 3, 4]
    assert not in_hand.has_suspended
    assert not in_hand.is_stopped
    assert in_hand.suspended_bytes == 0


def test_request_size_includes_body_and_fields() -> None:
    small = request_bytes(make_request(1))
    assert request_bytes(make_request(1, {"a": "x" * 1000}, bytes(500))) == small + 1500
