"""Invalid and too complex SQL92 conditions."""

import itertools
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.bad_input.kit import Wire, World, pull_header

MIB = 1 << 20

_versions = itertools.count(1)


def subscription(condition: str) -> dict[str, Any]:
    version = next(_versions)
    return {
        "topic": "Bad",
        "subString": condition,
        "subVersion": version,
        "expressionType": "SQL92",
    }


def pulled(peer: Wire, condition: str) -> tuple[int, str]:
    """Pull with a condition in the request."""
    header = {**pull_header("Bad", 0), "sysFlag": "4"}
    header |= {"subscription": condition, "expressionType": "SQL92"}
    response = peer.call(11, header)
    return response.code, response.remark or ""


def asked(peer: Wire, condition: str) -> tuple[int, str]:
    """Ask first, as official clients do."""
    body = {"clientId": "c", "group": "Conditions", "subscriptionData": subscription(condition)}
    response = peer.call(46, {}, orjson.dumps(body))
    return response.code, response.remark or ""


def subscribed(peer: Wire, condition: str) -> tuple[int, str]:
    """Subscribe with it without the check, then pull."""
    consumer = {
        "groupName": "Conditions",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription(condition)],
    }
    beat = peer.call(34, {}, orjson.dumps({"clientID": "c", "consumerDataSet": [consumer]}))
    assert beat.code == 0
    header = {**pull_header("Bad", 0), "sysFlag": "0", "consumerGroup": "Conditions"}
    response = peer.call(11, {**header, "subVersion": "1"})
    return response.code, response.remark or ""


@pytest.mark.parametrize(("way", "code"), [(pulled, 23), (asked, 23), (subscribed, 27)])
def test_wrong_condition_is_refused_with_its_place(
    world: World, way: Callable[[Wire, str], tuple[int, str]], code: int
) -> None:
    wrong = {"a >": 4, "a == 5": 4, "a = 'x": 5, "a > 'x'": 3, "a IN (1)": 7, "a = 1 AND": 10}
    with world.staying_well(), world.peer() as peer:
        for condition, place in wrong.items():
            got, remark = way(peer, condition)
            assert (got, f"at character {place}: " in remark) == (code, True), remark


def test_condition_beyond_the_bounds_is_refused_at_once(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        for condition in (
            "a = '" + "x" * (7 * MIB) + "'",
            "(" * 5_000 + "a" + ")" * 5_000,
            "NOT " * 4_000 + "a",
            "a=1 OR " * 2_000 + "a=1",
            "a" + " IS NULL" * 1_500,
        ):
            got, remark = pulled(peer, condition)
            assert (got, "at character" in remark) == (23, True), remark
        assert pulled(peer, "a = 1")[0] != 23
