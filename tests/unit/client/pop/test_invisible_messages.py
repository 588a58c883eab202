"""Invisible messages: each is settled once, or expires."""

import asyncio
from typing import Any

import pytest

from rocketpy.client.messages.outcomes import Rejection
from rocketpy.client.pop.invisible_messages import RETRY_DELAYS_S
from rocketpy.errors import (
    BadBodyError,
    BrokerError,
    ClosedError,
    ConnectError,
    NoRouteError,
    RequestTimeoutError,
    SystemFaultError,
)
from rocketpy.proto.record.message import MessageExt
from rocketpy.testing.sim_loop import pass_time
from tests.unit.client.pop_kit import ACK, CHANGE, INVISIBLE_MS, Kit, run, stored


def test_popped_message_is_leased_until_it_is_acked() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take(5)
        assert (message.topic, message.offset, message.body) == ("T", 5, b"5")
        assert message.queue == ("T", "b", 3)
        assert (len(kit.hand), kit.hand.holds(message)) == (1, True)
        await message.ack()
        assert (len(kit.hand), kit.hand.holds(message)) == (0, False)
        [fields] = kit.broker.of_code(ACK)
        assert (fields["consumerGroup"], fields["topic"], fields["offset"]) == ("g", "T", "5")
        assert fields["extraInfo"] == "0 1000 60000 2 0 b 3 5"

    run(case)


def test_second_outcome_does_nothing() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take()
        await message.ack()
        await message.ack()
        await message.nack()
        await message.nack(-1)
        await message.change_invisible(5)
        assert len(kit.broker.asked) == 1
        assert kit.instance.sent_back == []

    run(case)


def test_expired_message_is_not_held(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take()
        await pass_time(INVISIBLE_MS / 1000 - 0.1)
        assert kit.hand.holds(message)
        await pass_time(0.1)
        await message.ack()
        assert kit.broker.asked == []
        assert not kit.hand.holds(message)
        assert len(kit.hand) == 0

    run(case)
    assert "invisible time expired" in caplog.text


def test_there_is_room_for_so_many() -> None:
    async def case() -> None:
        kit = Kit(max_messages=2)
        messages = [kit.take(number) for number in range(2)]
        assert not kit.hand.has_room
        waiting = asyncio.ensure_future(kit.hand.wait_for_room())
        await pass_time(1)
        assert not waiting.done()
        await messages[0].ack()
        await waiting
        assert kit.hand.has_room
        kit.take(2)
        assert not kit.hand.has_room
        kit.hand.drop_all()
        assert (len(kit.hand), kit.hand.has_room) == (0, True)

    run(case)


@pytest.mark.parametrize(("retries", "delay_s"), [(0, 10), (1, 30), (5, 240), (15, 7_200)])
def test_message_that_failed_comes_back_later_each_time(retries: int, delay_s: int) -> None:
    async def case() -> None:
        kit = Kit()
        await kit.take(retries=retries).nack()
        [fields] = kit.broker.of_code(CHANGE)
        assert fields["invisibleTime"] == str(delay_s * 1_000)
        assert len(kit.hand) == 0

    run(case)


def test_longest_delay_holds_for_every_retry_after_it() -> None:
    async def case() -> None:
        kit = Kit(max_retries=1_000)
        await kit.take(retries=500).nack()
        assert kit.broker.of_code(CHANGE)[0]["invisibleTime"] == str(RETRY_DELAYS_S[-1] * 1_000)

    run(case)


def test_nack_delay_has_precedence_over_the_number_of_retries() -> None:
    async def case() -> None:
        kit = Kit(max_retries=2)
        await kit.take(retries=9).nack(delay=1.5)
        assert kit.broker.of_code(CHANGE)[0]["invisibleTime"] == "1500"
        assert kit.instance.sent_back == []

    run(case)


@pytest.mark.parametrize(("retries", "level"), [(2, 0), (3, 0), (0, -1)])
def test_dead_letter_is_moved_before_it_is_acked(retries: int, level: int) -> None:
    async def case() -> None:
        kit = Kit(max_retries=2)
        await kit.take(5, retries=retries).nack(level)
        [moved] = kit.instance.sent_back
        assert (moved.offset, moved.group, moved.delay_level) == (905, "g", -1)
        assert (moved.origin_topic, moved.origin_msg_id) == ("T", "ID")
        assert moved.max_reconsume_times == 2
        assert len(kit.broker.of_code(ACK)) == 1

    run(case)


def test_dead_letter_that_was_not_moved_is_not_acked() -> None:
    async def case() -> None:
        kit = Kit()
        kit.instance.send_back_failures = [SystemFaultError(1, "disk")]
        with pytest.raises(BrokerError, match="disk"):
            await kit.take().nack(-1)
        assert kit.broker.of_code(ACK) == []

    run(case)


def test_ack_is_repeated_while_the_message_is_ours() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take()
        kit.broker.script[ACK] = [ConnectError("gone"), RequestTimeoutError("slow")]
        began_ms = kit.clock.monotonic_ms()
        await message.ack()
        assert len(kit.broker.of_code(ACK)) == 3
        assert 2_000 <= kit.clock.monotonic_ms() - began_ms < 3_000

    run(case)


def test_ack_that_never_gets_through_says_so_when_the_time_is_over() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take()
        kit.broker.script[ACK] = [ConnectError("gone")] * 100
        with pytest.raises(ConnectError):
            await message.ack()
        assert INVISIBLE_MS - 2_000 <= kit.clock.monotonic_ms() <= INVISIBLE_MS

    run(case)


def test_ack_that_the_broker_refuses_is_not_repeated() -> None:
    async def case() -> None:
        kit = Kit()
        kit.broker.script[ACK] = [13]
        with pytest.raises(BrokerError):
            await kit.take().ack()
        assert len(kit.broker.of_code(ACK)) == 1

    run(case)


def test_settling_without_a_master_raises() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take()
        kit.instance.masters.clear()
        with pytest.raises(NoRouteError, match="broker b has no master"):
            await message.nack()

    run(case)


def test_message_kept_for_longer_is_acked_under_its_new_handle() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take(5)
        await message.change_invisible(300)
        assert kit.broker.of_code(CHANGE)[0]["invisibleTime"] == "300000"
        await pass_time(INVISIBLE_MS / 1000 + 1)
        assert kit.hand.holds(message)
        await message.ack()
        assert kit.broker.of_code(ACK)[0]["extraInfo"] == "5 5000 300000 7 0 b 3 5"

    run(case)


def test_in_order_a_message_stays_in_its_pop() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take(5, revive=999)
        kit.broker.script[CHANGE] = [({"reviveQid": "999"}, b"")]
        await message.change_invisible(300)
        await message.ack()
        assert kit.broker.of_code(ACK)[0]["extraInfo"].startswith("0 5000 300000 999")

    run(case)


def test_message_kept_for_shorter_is_lost_sooner() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take()
        await message.change_invisible(2)
        await pass_time(3)
        assert not kit.hand.holds(message)

    run(case)


def test_message_that_was_not_kept_has_its_old_time() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take()
        kit.broker.script[CHANGE] = [ConnectError("gone")]
        with pytest.raises(ConnectError):
            await message.change_invisible(300)
        assert kit.hand.holds(message)
        await pass_time(INVISIBLE_MS / 1000)
        assert not kit.hand.holds(message)

    run(case)


def test_message_is_ours_while_the_broker_is_asked_to_let_us_keep_it() -> None:
    async def case() -> None:
        kit = Kit()
        message = kit.take()
        await pass_time(INVISIBLE_MS / 1000 - 1)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        kit.broker.script[CHANGE] = [answer]
        keeping = asyncio.ensure_future(message.change_invisible(60))
        await pass_time(5)
        assert kit.hand.holds(message)
        await message.change_invisible(1)  # not twice at a time
        assert len(kit.broker.of_code(CHANGE)) == 1
        answer.set_result(None)
        await keeping
        assert kit.hand.holds(message)

    run(case)


def test_outcome_waits_for_the_new_handle_of_a_message_that_is_just_kept() -> None:
    async def case() -> None:
        kit = Kit()
        acked, given_back = kit.take(1), kit.take(2)
        await pass_time(INVISIBLE_MS / 1000 - 1)
        answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
        kit.broker.script[CHANGE] = list(answers)
        work = [asyncio.ensure_future(kit.hand.renew(kit.hand.messages, INVISIBLE_MS))]
        await pass_time(0.1)
        work += [asyncio.ensure_future(each) for each in (acked.ack(), given_back.nack(delay=0))]
        await pass_time(0.1)
        assert kit.broker.of_code(ACK) == []
        for answer in answers:
            answer.set_result(None)
        await asyncio.gather(*work)
        changed = [f"{each} 5000 60000 7 0 b 3 {each}" for each in (1, 2)]
        assert [fields["extraInfo"] for fields in kit.broker.of_code(ACK)] == changed[:1]
        last = kit.broker.of_code(CHANGE)[-1]
        assert (last["extraInfo"], last["invisibleTime"]) == (changed[1], "0")

    run(case)


def test_renew_extends_messages_with_less_than_half_of_their_time() -> None:
    async def case() -> None:
        kit = Kit(max_messages=9)
        old = kit.take(1)
        await pass_time(INVISIBLE_MS / 2000)
        kit.take(2)
        await kit.hand.renew(kit.hand.messages, INVISIBLE_MS)
        assert [fields["offset"] for fields in kit.broker.of_code(CHANGE)] == ["1"]
        await pass_time(INVISIBLE_MS / 1000 - 1)
        assert kit.hand.holds(old)

    run(case)


def test_failed_renewal_is_logged_and_others_are_renewed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def case() -> None:
        kit = Kit()
        kit.take(1)
        kit.take(2)
        await pass_time(INVISIBLE_MS / 1500)
        kit.broker.script[CHANGE] = [ConnectError("gone")]
        await kit.hand.renew(kit.hand.messages, INVISIBLE_MS)
        assert [fields["offset"] for fields in kit.broker.of_code(CHANGE)] == ["1", "2"]

    run(case)
    assert "invisible time not extended" in caplog.text


def test_message_without_a_handle_is_none_of_ours() -> None:
    async def case() -> None:
        kit = Kit()
        with pytest.raises(BadBodyError):
            kit.hand.take(MessageExt(topic="T"), "b", INVISIBLE_MS)
        assert len(kit.hand) == 0

    run(case)


def test_namespace_is_not_shown() -> None:
    async def case() -> None:
        kit = Kit()
        kit.instance.config.namespace = "ns"
        message = stored()
        message.topic = "ns%T"
        assert kit.hand.take(message, "b", INVISIBLE_MS).topic == "T"

    run(case)


@pytest.mark.parametrize(
    ("rejection", "delay_ms"),
    [
        (Rejection(), 3_000),
        (Rejection(delay_s=0.25), 250),
        (Rejection(delay_level=2), 5_000),
    ],
)
def test_failed_handler_or_backoff_chooses_an_exact_delay(
    rejection: Rejection, delay_ms: int
) -> None:
    async def case() -> None:
        kit = Kit(backoff=lambda retry: retry)
        await kit.hand.redeliver([kit.take(retries=2)], rejection)
        assert kit.broker.of_code(CHANGE)[0]["invisibleTime"] == str(delay_ms)

    run(case)


def test_handler_that_chooses_its_delays_has_a_last_retry() -> None:
    async def case() -> None:
        kit = Kit(max_retries=2)
        await kit.hand.redeliver(
            [kit.take(retries=2)], Rejection(0, 5, "OSError", "printer is off")
        )
        [moved] = kit.instance.sent_back
        assert (moved.dlq_exception, moved.dlq_reason) == ("OSError", "printer is off")
        assert moved.dlq_member == kit.instance.client_id
        assert kit.broker.of_code(CHANGE) == []

    run(case)


def test_outcome_after_the_close_raises_unless_settled_before() -> None:
    async def case() -> None:
        kit = Kit()
        done, unsettled = kit.take(1), kit.take(2)
        await done.ack()
        kit.hand.drop_all()
        await done.ack()
        with pytest.raises(ClosedError, match="closed before"):
            await unsettled.ack()
        with pytest.raises(ClosedError, match="closed before"):
            await unsettled.nack()

    run(case)
