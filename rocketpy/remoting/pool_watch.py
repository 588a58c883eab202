"""Refusing what waits too long in a business pool, whether or not a thread comes to it."""

import asyncio

from rocketpy.remoting.business import SWEEP_INTERVAL_MS, BusinessPool


def watch_pool(loop: asyncio.AbstractEventLoop, pool: BusinessPool) -> None:
    """Look every 10 ms at the head of a pool's queue, while anything waits there.

    Source: BrokerFastFailure (5.4.0).
    """
    if pool.queue_wait_ms > 0 and pool.claim_watch():
        loop.call_later(SWEEP_INTERVAL_MS / 1000, _look, loop, pool)


def _look(loop: asyncio.AbstractEventLoop, pool: BusinessPool) -> None:
    pool.sweep_now()
    if not pool.release_watch():
        loop.call_later(SWEEP_INTERVAL_MS / 1000, _look, loop, pool)
