"""Transactions, from the producer's side."""

import asyncio
from typing import Any

import pytest

import rocketpy
from rocketpy.client.producer.transaction import (
    MAX_CHECK_BYTES,
    MAX_CHECKS,
    CheckBackResponder,
    half_properties,
)
from rocketpy.errors import ClosedError, HalfNotStoredError, IllegalMessageError
from rocketpy.proto.headers.transaction import CheckTransactionStateRequestHeader
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.testing.sim_clock import SimClock
from tests.unit.client.sim import BROKER_A, Cluster, pass_time, run_sim
from tests.unit.client.steps import until

SEND, END = 310, 37
QUICK_CHECKS = {"transactionCheckInterval": "1000", "transactionTimeOut": "100"}


def _ends(cluster: Cluster) -> list[tuple[str, str]]:
    """Decision and whether it answers a check, of every end."""
    return [
        (each.ext_fields["commitOrRollback"], each.ext_fields["fromTransactionCheck"])
        for each in cluster.of_code(END)
    ]


def test_half_message_says_what_it_is_and_the_end_names_it() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(group="shop")
            async with producer.transaction("t", b"x", tag="a", check_after=60) as tx:
                half = cluster.of_code(SEND)[0].ext_fields
                assert int(half["f"]) & 0xC == 4
                properties = parse_properties(half["i"])
                assert properties["TRAN_MSG"] == "true"
                assert properties["PGROUP"] == "shop"
                assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "60"
                assert tx.id == properties["UNIQ_KEY"] == tx.half.msg_id
                assert tx.state is None
            (end,) = cluster.of_code(END)
            assert tx.state is rocketpy.TxState.COMMIT
            assert end.ext_fields["tranStateTableOffset"] == str(tx.half.offset)
            assert end.ext_fields["producerGroup"] == "shop"
            assert end.ext_fields["transactionId"] == tx.id
        assert _ends(cluster) == [("8", "false")]

    run_sim(main)


@pytest.mark.parametrize("status", [10, 11, 12])
def test_half_message_stored_less_safely_is_rolled_back_and_nothing_begins(status: int) -> None:
    def less_safe(_: str, request: RemotingCommand) -> RemotingCommand:
        ids = {"msgId": "0A00000B00002A9F0000000000000000", "queueId": "0", "queueOffset": "0"}
        return make_response(request, status, ext_fields=ids)

    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [less_safe]
        async with cluster.client() as client:
            with pytest.raises(HalfNotStoredError, match="less safely"):
                async with client.producer().transaction("t", b"x"):
                    pytest.fail("the local transaction began")
        assert _ends(cluster) == [("12", "false")]

    run_sim(main)


def test_half_message_that_the_broker_finds_illegal_raises_as_a_send() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [13]
        async with cluster.client() as client:
            with pytest.raises(IllegalMessageError, match="scripted"):
                async with client.producer().transaction("t", b"x"):
                    pytest.fail("the local transaction began")
        assert _ends(cluster) == []

    run_sim(main)


@pytest.mark.parametrize("step", [1, 2, 14, "lost"])
def test_half_message_that_is_not_stored_begins_nothing_and_is_sent_once(step: Any) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [step] * 3
        async with cluster.client() as client:
            with pytest.raises(HalfNotStoredError) as caught:
                async with client.producer().transaction("t", b"x"):
                    pytest.fail("the local transaction began")
            assert caught.value.__cause__ is not None
        assert len(cluster.of_code(SEND)) == 1
        assert _ends(cluster) == []

    run_sim(main, brokers=2)


def test_half_message_that_no_broker_got_is_sent_to_another() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.down = {BROKER_A}
        async with cluster.client() as client:
            producer = client.producer()
            for _ in range(4):
                async with producer.transaction("t", b"x") as tx:
                    assert tx.half.queue.broker_name == "broker-b"

    run_sim(main, brokers=2)


def test_transaction_beyond_a_limit_raises_as_a_send() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            for options in ({"delay_level": 3}, {"check_after": -1}, {"delay": 5}):
                with pytest.raises(IllegalMessageError):
                    async with producer.transaction("t", b"x", **options):  # type: ignore[arg-type]
                        pytest.fail("the local transaction began")
        assert cluster.of_code(SEND) == []

    run_sim(main)


def test_transaction_ends_once() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            with pytest.raises(ClosedError, match="not begun"):
                _ = producer.transaction("t", b"x").id
            async with producer.transaction("t", b"x") as tx:
                await tx.rollback()
                for again in (tx.commit, tx.rollback):
                    with pytest.raises(ClosedError, match="ROLLBACK"):
                        await again()
            with pytest.raises(ClosedError, match="twice"):
                await tx.__aenter__()
        assert _ends(cluster) == [("12", "false")]

    run_sim(main)


def test_end_that_is_not_confirmed_is_no_error_of_the_block() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[END] = ["lost", 604]
        async with cluster.client() as client:
            producer = client.producer()
            for _ in range(2):
                async with producer.transaction("t", b"x") as tx:
                    pass
                assert not tx.is_confirmed
            async with producer.transaction("t", b"x") as tx:
                pass
            assert tx.is_confirmed

    run_sim(main)


@pytest.mark.parametrize("has_checker", [True, False])
def test_cancelled_block_is_left_to_the_checker_if_there_is_one(has_checker: bool) -> None:
    async def main(cluster: Cluster) -> None:
        async def check(_: rocketpy.ReceivedMessage) -> rocketpy.TxState:
            return rocketpy.TxState.UNKNOWN

        async with cluster.client() as client:
            producer = client.producer(tx_checker=check if has_checker else None)

            async def block() -> None:
                async with producer.transaction("t", b"x"):
                    await asyncio.Event().wait()

            task = asyncio.create_task(block())
            await pass_time(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert _ends(cluster) == ([] if has_checker else [("12", "false")])

    run_sim(main)


def test_unknown_outcome_without_checker_logs_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.producer().transaction("t", b"x") as tx:
                tx.unknown()

    run_sim(main)
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert ["this producer has no tx_checker" in each for each in said] == [True]


def test_checker_answers_and_its_failures_mean_unknown() -> None:
    async def main(cluster: Cluster) -> None:
        answers: list[Any] = [ValueError("no database"), "nonsense", rocketpy.TxState.COMMIT]

        async def check(message: rocketpy.ReceivedMessage) -> rocketpy.TxState:
            assert message.decode() == b"x"
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        async with cluster.client() as client:
            producer = client.producer(tx_checker=check)
            async with producer.transaction("t", b"x") as tx:
                tx.unknown()
            await until(lambda: len(cluster.of_code(END)) == 3)
            await pass_time(5)
        assert _ends(cluster) == [("0", "true"), ("0", "true"), ("8", "true")]
        assert "no database" in (cluster.of_code(END)[0].remark or "")

    run_sim(main, properties=QUICK_CHECKS)


def test_checker_failures_of_one_kind_have_one_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    states: list[rocketpy.TxState] = []

    class Ends:
        async def answer(self, *arguments: Any) -> None:
            states.append(arguments[3])

    async def main() -> None:
        async def check(message: rocketpy.ReceivedMessage) -> rocketpy.TxState:
            raise ValueError("no database")

        ends: Any = Ends()
        answers = CheckBackResponder(check, ends, rocketpy.plain, SimClock())
        asked = CheckTransactionStateRequestHeader(tran_state_table_offset=1, commit_log_offset=1)
        for _ in range(100):
            answers.ask(asked, "a:1", MessageExt(topic="t"))
        await asyncio.wait(list(answers._tasks))
        assert states == [rocketpy.TxState.UNKNOWN] * 100

    asyncio.run(main())
    assert caplog.text.count("Traceback") == 1
    assert "outcome=checked_back callback=tx_checker failures=1" in caplog.text


def test_checkbacks_in_progress_are_bounded_and_end_at_close() -> None:
    async def main() -> None:
        running: list[str] = []

        async def check(message: rocketpy.ReceivedMessage) -> rocketpy.TxState:
            running.append(message.topic)
            await asyncio.Event().wait()
            return rocketpy.TxState.COMMIT

        ends: Any = None
        answers = CheckBackResponder(check, ends, rocketpy.plain, SimClock())
        asked = CheckTransactionStateRequestHeader(tran_state_table_offset=1, commit_log_offset=1)
        for _ in range(MAX_CHECKS + 5):
            answers.ask(asked, "a:1", MessageExt(topic="t"))
        assert len(answers._tasks) == MAX_CHECKS
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(running) == 16
        await answers.close()
        assert not answers._tasks

    asyncio.run(main())


def test_properties_of_a_half() -> None:
    assert half_properties("g", None) == {"TRAN_MSG": "true", "PGROUP": "g"}
    assert half_properties("g", 0.2)["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "1"


def test_checkback_bodies_are_bounded_and_none_starts_after_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async def check(message: rocketpy.ReceivedMessage) -> rocketpy.TxState:
            await asyncio.Event().wait()
            return rocketpy.TxState.COMMIT

        ends: Any = None
        answers = CheckBackResponder(check, ends, rocketpy.plain, SimClock())
        asked = CheckTransactionStateRequestHeader(tran_state_table_offset=1, commit_log_offset=1)
        large = MessageExt(topic="t", body=bytes(MAX_CHECK_BYTES // 4 + 1))
        for _ in range(100):
            answers.ask(asked, "a:1", large)
        assert len(answers._tasks) == 3
        assert caplog.text.count("transaction check skipped") == 1
        closing = asyncio.ensure_future(answers.close())
        await asyncio.sleep(0)
        answers.ask(asked, "a:1", MessageExt(topic="t"))
        await closing
        assert not answers._tasks
        assert not answers._size_bytes

    asyncio.run(main())
