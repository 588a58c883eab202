"""`rocketpy group dlq`: selection and pace; tests/integration/cli has a real cluster."""

import asyncio
from typing import Any, cast

import click
import pytest

from rocketpy.admin import Admin, DeadLetter
from rocketpy.cli.commands import dead_letters
from rocketpy.errors import ConnectError
from rocketpy.proto.message_queue import MessageQueue


def letter(offset: int, msg_id: str = "A") -> DeadLetter:
    return DeadLetter(
        group="g",
        queue=MessageQueue("%DLQ%g", "broker-a", 0),
        offset=offset,
        msg_id=msg_id,
        letter_id=f"L{offset}",
        origin_topic="t",
        origin_id="O",
        stored_ms=1,
        retries=3,
        tag="",
        keys=[],
    )


class Requeues:
    """Admin that fails for one letter and sent another before."""

    async def requeue_dead_letter(self, each: DeadLetter, *, dry_run: bool) -> bool:
        assert not dry_run
        if each.offset == 2:
            raise ConnectError("refused")
        return each.offset != 3


def test_letters_are_selected_by_any_of_their_ids() -> None:
    letters = [letter(0), letter(1), letter(2, "B")]
    assert dead_letters._selected(letters, ["a"]) == letters[:2], "in any case"
    assert dead_letters._selected(letters, ["L1", "B", "A"]) == [letters[1], letters[2], letters[0]]
    assert dead_letters._selected(letters, ["O"]) == letters
    with pytest.raises(click.ClickException, match="no dead letter with the id X, Y"):
        dead_letters._selected(letters, ["X", "A", "Y"])


async def test_sends_are_evenly_spaced_and_failures_are_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    letters = [letter(offset) for offset in range(5)]
    admin = cast("Admin", cast("Any", Requeues()))
    rows = await dead_letters._requeue(admin, letters, 0.1, dry_run=False)
    assert [row["result"] for row in rows] == [
        "requeued", "requeued", "failed", "requeued before", "requeued",
    ]  # fmt: skip
    assert [row["error"] for row in rows if row["error"]] == ["refused"]
    assert len(pauses) == 2, "after sends only"
    assert 9 < pauses[0] <= 10
    assert 19 < pauses[1] <= 20, "the first pause did not pass here"
