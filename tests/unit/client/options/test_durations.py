"""Durations of options: seconds or a timedelta, under names without a unit."""

import inspect
from datetime import timedelta
from typing import Any

import pytest

import rocketpy
from rocketpy.client.options.durations import to_ms, to_s
from rocketpy.errors import ConfigError
from tests.unit.client.sim import Cluster, pass_time, run_sim

PULL, POP, HEARTBEAT = 11, 200_050, 34

RENAMED = {
    "connect": {
        "api_timeout_ms": "api_timeout",
        "route_refresh_interval_ms": "route_refresh_interval",
        "heartbeat_interval_ms": "heartbeat_interval",
        "persist_interval_ms": "persist_interval",
    },
    "producer": {"timeout_s": "timeout", "attempt_timeout_s": "attempt_timeout"},
    "consumer": {
        "suspend_queue_ms": "ordered_retry_pause",
        "pull_interval_ms": "pull_interval",
        "suspend_ms": "pull_wait",
        "pull_timeout_ms": "pull_timeout",
        "pull_error_pause_ms": "pull_error_pause",
        "rebalance_interval_ms": "rebalance_interval",
        "takeover_pause_ms": "takeover_pause",
        "start_timeout_s": "start_timeout",
        "stop_timeout_s": "stop_timeout",
        "consume_timeout_ms": "consume_timeout",
        "local_retry_ms": "local_retry_pause",
    },
    "pull_consumer": {"auto_commit_interval_ms": "auto_commit_interval"},
    "pop_consumer": {
        "invisible_s": "invisible_time",
        "poll_ms": "pop_wait",
        "error_pause_ms": "error_pause",
    },
}
MAKERS: dict[str, Any] = {"connect": rocketpy.connect} | {
    name: getattr(rocketpy.Client, name) for name in RENAMED if name != "connect"
}


@pytest.mark.parametrize(
    ("duration", "seconds", "ms"),
    [
        (0, 0, 0), (3, 3, 3_000), (0.57, 0.57, 570), (0.0001, 0.0001, 1),
        (timedelta(minutes=2), 120, 120_000), (timedelta(milliseconds=1), 0.001, 1),
    ],
)  # fmt: skip
def test_duration_is_seconds_or_a_timedelta(
    duration: float | timedelta, seconds: float, ms: int
) -> None:
    assert to_s(duration) == seconds
    assert to_ms(duration) == ms


@pytest.mark.parametrize("name", MAKERS)
def test_no_option_has_a_unit_in_its_name(name: str) -> None:
    options = inspect.signature(MAKERS[name]).parameters
    assert not [each for each in options if each.endswith(("_s", "_ms", "_seconds"))]
    assert set(RENAMED[name].values()) <= options.keys()


@pytest.mark.parametrize(
    ("maker", "old", "new"),
    [(name, old, new) for name, pairs in RENAMED.items() for old, new in pairs.items()],
)
def test_name_with_a_unit_is_refused_with_the_one_to_use(maker: str, old: str, new: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            make: Any = rocketpy.connect if maker == "connect" else getattr(client, maker)
            topic = ("t",) if maker in {"consumer", "pop_consumer"} else ()
            words = rf"{maker}\(\) has no option '{old}': it is {new}, in seconds"
            with pytest.raises(TypeError, match=words):
                make(*topic, **{old: 5})

    run_sim(main)


def test_timedelta_does_what_as_many_seconds_do() -> None:
    async def main(cluster: Cluster) -> None:
        async def nothing(message: Any) -> None:
            return None

        async with cluster.client(heartbeat_interval=timedelta(seconds=7)) as client:
            options: dict[str, Any] = {"handler": nothing, "start": "earliest"}
            consumer = client.consumer(
                "t", group="c", pull_wait=timedelta(seconds=4), pull_timeout=30, **options
            )
            popping = client.pop_consumer(
                "t", group="p", invisible_time=timedelta(minutes=3), **options
            )
            async with consumer, popping:
                await pass_time(30)
            pull = next(r for r in cluster.of_code(PULL) if r.ext_fields["topic"] == "t")
            assert pull.ext_fields["suspendTimeoutMillis"] == "4000"
            assert cluster.of_code(POP)[0].ext_fields["invisibleTime"] == "180000"
            beats = [at for at, request in cluster.times if request.code == HEARTBEAT]
            assert 7_000 <= beats[-1] - beats[-2] < 7_100, "and the time the answer takes"

    run_sim(main)


def test_one_send_may_have_a_timedelta_of_time() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(name_servers="10.0.0.99:9876") as client:
            producer: Any = client.producer(timeout=timedelta(seconds=9))
            for options, most_ms in (({}, 9_000), ({"timeout": timedelta(seconds=2)}, 2_000)):
                began_ms = cluster.clock.monotonic_ms()
                with pytest.raises(rocketpy.errors.RocketPyError):
                    await producer.send("t", b"x", **options)
                took_ms = cluster.clock.monotonic_ms() - began_ms
                assert most_ms - 100 <= took_ms <= most_ms + 100
            for wrong in (timedelta(seconds=-1), float("nan")):
                with pytest.raises(rocketpy.errors.IllegalMessageError, match="timeout"):
                    await producer.send("t", b"x", timeout=wrong)

    run_sim(main)


@pytest.mark.parametrize("wrong", [timedelta(seconds=-1), "5", None, True, float("inf")])
def test_invalid_duration_raises(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        rocketpy.connect("a:1", api_timeout=wrong)
    assert caught.value.key == "api_timeout"
