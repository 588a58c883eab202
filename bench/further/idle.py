"""Thousands of connections that are idle after one request."""

import time

from bench.further.findings import Context, Finding
from bench.processes import start_rocketpy
from bench.raw import RawClient, quota
from rocketpy.proto.wire.codes import RequestCode

__all__ = ["run"]

COUNT = 5_000
KIB_A_CONNECTION = 10.0
"""Most memory a connection."""
_ASKED = 500


def run(context: Context) -> list[Finding]:
    """Open connections, measure memory and processor time, send a request on another one."""
    count = context.scaled(COUNT, 100)
    quiet_s = max(1.0, 5.0 * context.scale)
    defines = (f"serverMaxConnections={count + 100}",)
    clients: list[RawClient] = []
    with context.sides(lambda: start_rocketpy(context.scratch / "idle", defines)) as (side,):
        try:
            other = RawClient(side.broker)
            clients.append(other)
            before_us = _asked_us(other)
            before_kib = side.rss_mib()["broker"] * 1024
            began_s = time.monotonic()
            for _ in range(count):
                client = RawClient(side.broker)
                clients.append(client)
                client.ask(RequestCode.GET_BROKER_CONFIG, {})
            opened_s = time.monotonic() - began_s
            time.sleep(1.0)
            with_kib = side.rss_mib()["broker"] * 1024
            cpu_before_s = side.cpu_s()
            time.sleep(quiet_s)
            cpu_ms_s = (side.cpu_s() - cpu_before_s) / quiet_s * 1000
            after_us = _asked_us(other)
        finally:
            for client in clients:
                client.close()
    name = f"{count:,} connections"
    return [
        Finding(f"{name}: memory of one", (with_kib - before_kib) / count, "KiB", KIB_A_CONNECTION),
        Finding(f"{name}: CPU while all are silent", cpu_ms_s, "ms a second"),
        Finding(f"{name}: opened and asked, one after the other", count / opened_s, "/s"),
        Finding(f"{name}: median answer to another one", after_us, "us", beside=None),
        Finding("median answer before they came", before_us, "us"),
    ]


def _asked_us(client: RawClient) -> float:
    times = []
    for _ in range(_ASKED):
        began_s = time.perf_counter()
        client.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {})
        times.append((time.perf_counter() - began_s) * 1e6)
    return quota(sorted(times), 0.5)
