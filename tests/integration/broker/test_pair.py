"""A master and a slave as processes: copies, reads from the slave, commits that go back."""

import asyncio
import json
import os
import struct
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.proto.wire.codes import RequestCode
from tests.integration.broker.pair import Pair, Requests, until

TOPIC, GROUP = "orders", "billing"


async def ha_status(ask: Requests, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await ask.ask(name, RequestCode.GET_BROKER_HA_STATUS)).body)
    return found


async def slave_state(ask: Requests) -> str:
    return str((await ha_status(ask, "slave"))["haClientRuntimeInfo"].get("state"))


async def is_streaming(ask: Requests) -> bool:
    return await slave_state(ask) == "STREAMING"


async def can_read(ask: Requests) -> bool:
    response, _ = await ask.pull("slave", TOPIC, GROUP, 0, 0)
    return response.code == 0


def command(pair: Pair, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "rocketpy", *arguments],
        env={**os.environ, "NAMESRV_ADDR": pair.namesrv},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def assert_tools_show_the_pair(pair: Pair) -> None:
    listed = command(pair, "cluster", "list", "-o", "json")
    rows = {each["id"]: each for each in json.loads(listed.stdout)}
    assert (rows[0]["role"], rows[1]["role"]) == ("MASTER", "SLAVE")
    assert (rows[1]["state"], rows[1]["lag_bytes"], rows[1]["in_sync"]) == (
        "STREAMING",
        0,
        True,
    )
    checked = command(pair, "check", "replication", "--min-in-sync", "2")
    assert checked.returncode == 0, checked.stdout + checked.stderr


async def test_pair_master_that_is_killed_loses_nothing_and_gets_the_commits(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path, inSyncReplicas="2")
    async with pair.running() as ask:
        await until(lambda: is_streaming(ask), "the slave follows")
        async with rocketpy.admin.connect(pair.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=1)
            await admin.create_group(GROUP)
        async with rocketpy.connect(pair.namesrv) as client, client.producer() as producer:
            sent = [b"message %d" % number for number in range(200)]
            for body in sent[:-1]:
                await producer.send(TOPIC, body)
            await until(lambda: can_read(ask), "the slave has topic and group")
            # Pulls at the slave wait for the log: at the end of the queue, and beyond it.
            waits = [
                asyncio.create_task(ask.pull("slave", TOPIC, GROUP, 0, offset, 20_000))
                for offset in (199, 200)
            ]
            await asyncio.sleep(0.5)
            await producer.send(TOPIC, sent[-1])
            response, messages = await waits[0]
            assert (response.code, [each.body for each in messages]) == (0, sent[-1:])
            assert not waits[1].done()
            waits[1].cancel()
        assert await ask.commit("master", TOPIC, GROUP, 50) == 0

        # What was acknowledged is on both, byte for byte.
        ends = (await ha_status(ask, "master"))["masterCommitLogMaxOffset"]
        end = (await ha_status(ask, "slave"))["haClientRuntimeInfo"]["maxOffset"]
        assert end == ends
        assert pair.log_of("slave")[:end] == pair.log_of("master")[:end]
        assert await ask.read_queue("slave", TOPIC, GROUP, 0) == sent

        assert_tools_show_the_pair(pair)

        async def has_offset() -> bool:
            return await ask.committed("slave", TOPIC, GROUP) == 50

        await until(has_offset, "the slave has the offsets")

        pair.kill("master")
        assert await ask.read_queue("slave", TOPIC, GROUP, 0) == sent
        refused = await ask.ask("slave", RequestCode.SEND_MESSAGE, {})
        assert refused.code == 2
        assert await ask.commit("slave", TOPIC, GROUP, 120) == 0
        checked = command(pair, "check", "replication")
        assert checked.returncode == 1
        assert "no master is registered" in checked.stdout

        pair.start("master")

        async def is_back() -> bool:
            return await ask.committed("master", TOPIC, GROUP) == 120

        await until(is_back, "the master has the commits of the slave")
        await until(lambda: is_streaming(ask), "the slave follows again")
        assert await ask.read_queue("master", TOPIC, GROUP, 0) == sent


async def test_pair_commits_at_the_slave_survive_its_restart(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    async with pair.running() as ask:
        await until(lambda: is_streaming(ask), "the slave follows")
        async with rocketpy.admin.connect(pair.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=1)
            await admin.create_group(GROUP)

        async def has_tables() -> bool:
            response, _ = await ask.pull("slave", TOPIC, GROUP, 0, 0)
            return response.code == 19

        await until(has_tables, "the slave has topic and group")
        pair.stop("master")
        assert await ask.commit("slave", TOPIC, GROUP, 7) == 0
        pair.stop("slave")
        pair.start("slave")
        pair.start("master")

        async def is_back() -> bool:
            return await ask.committed("master", TOPIC, GROUP) == 7

        await until(is_back, "the master has the commits of the slave")


@pytest.mark.alternate
async def test_pair_roles_swapped_by_hand_keep_messages_offsets_and_delays(tmp_path: Path) -> None:
    pair = Pair(tmp_path, inSyncReplicas="2")
    async with pair.running() as ask:
        await until(lambda: is_streaming(ask), "the slave follows")
        async with rocketpy.admin.connect(pair.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=1)
            await admin.create_group(GROUP)
        async with rocketpy.connect(pair.namesrv) as client, client.producer() as producer:
            due_ms = time.time_ns() // 1_000_000 + 1_500
            await producer.send(TOPIC, b"first", delay=timedelta(milliseconds=500))
            await producer.send(TOPIC, b"second", delay=timedelta(seconds=40))

        async def is_delivered() -> bool:
            return await ask.read_queue("slave", TOPIC, GROUP, 0) == [b"first"]

        await until(is_delivered, "the first one is delivered, and on the slave")
        assert await ask.commit("master", TOPIC, GROUP, 1) == 0
        path = pair.store("slave") / "config" / "timercheck"

        async def has_progress() -> bool:
            if not path.exists():
                return False
            read_ms, _, queue_offset = struct.unpack_from(">3q", path.read_bytes())
            has_timer = queue_offset == 2 and read_ms > due_ms
            return has_timer and await ask.committed("slave", TOPIC, GROUP) == 1

        await until(has_progress, "the slave has offset and timer checkpoint")
        pair.stop("master")
        pair.stop("slave")
        pair.set_roles(master="slave", slave="master")
        pair.start("slave")
        pair.start("master")

        async def follows() -> bool:
            status = (await ha_status(ask, "master"))["haClientRuntimeInfo"]
            return bool(status.get("state") == "STREAMING")

        await until(follows, "the old master follows the new one")
        assert await ask.committed("slave", TOPIC, GROUP) == 1

        async def is_second_delivered() -> bool:
            return len(await ask.read_queue("slave", TOPIC, GROUP, 0)) > 1

        await until(is_second_delivered, "the second one is delivered")
        await asyncio.sleep(1)
        assert await ask.read_queue("slave", TOPIC, GROUP, 0) == [b"first", b"second"]
        assert await ask.read_queue("master", TOPIC, GROUP, 0) == [b"first", b"second"]
