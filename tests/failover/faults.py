"""Faults of the rounds: processes, links and clocks."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from tests.failover.group import HEARTBEAT_TIMEOUT_MS
from tests.failover.network import Quality
from tests.failover.world import World, poll

Fault = Callable[[World], Coroutine[Any, Any, None]]

OWN = (0.0, 0.0)
SHORT = (0.2, 1.8)
LONG = (10.5, 13.0)
"""Seconds; longer than each lease, each timeout of the group, and etcd's leases."""
_HOUR_MS = 3_600_000
_DRIFT = 0.04


class Kind(NamedTuple):
    """Kind of a round.

    Attributes:
        name: row of the table.
        act: the fault; returns when it is over, not when the group has healed.
        span_s: bounds of `World.span_s`.
    """

    name: str
    act: Fault
    span_s: tuple[float, float] = OWN


async def kill_master(world: World) -> None:
    await world.restart(await world.master())


async def stop_master(world: World) -> None:
    await world.restart(await world.master(), number=signal.SIGTERM)


async def freeze_master(world: World) -> None:
    await world.freeze(
        await world.master(), world.rng.uniform(0.05, 4 * HEARTBEAT_TIMEOUT_MS / 1_000)
    )


async def kill_slave(world: World) -> None:
    await world.restart(await world.slave())


async def freeze_slave(world: World) -> None:
    await world.freeze(await world.slave(), world.rng.uniform(0.05, 4.0))


async def kill_two_masters(world: World) -> None:
    """Kill the master, and the next one as soon as it is elected."""
    first = await world.master()
    await world.send_signal(first, signal.SIGKILL)

    def other() -> str | None:
        found = world.group.master
        return None if found == first else found

    second = await poll(other, "no other master")
    await world.send_signal(second, signal.SIGKILL)
    await world.wait()
    await world.start(*sorted({first, second}))


async def kill_all(world: World) -> None:
    await world.restart(*world.replicas)


async def kill_controller(world: World) -> None:
    await world.restart(await world.controller())


async def kill_controller_for_long(world: World) -> None:
    await world.restart(await world.controller(), span_s=world.span_s)


async def freeze_controller_for_long(world: World) -> None:
    await world.freeze(await world.controller(), world.span_s)


async def kill_master_without_controller(world: World) -> None:
    """Kill a master while the only controller is away for long."""
    controller, master = await world.controller(), await world.master()
    await world.send_signal(controller, signal.SIGKILL)
    await world.wait()
    await world.restart(master)
    await asyncio.sleep(world.span_s)
    await world.start(controller)


async def kill_controller_and_master(world: World) -> None:
    await world.restart(await world.controller(), await world.master())


async def freeze_controller_and_kill_slave(world: World) -> None:
    """Let the master ask for another set while no controller answers."""
    controller, slave = await world.controller(), await world.slave()
    await world.send_signal(controller, signal.SIGSTOP)
    await world.send_signal(slave, signal.SIGKILL)
    await world.wait(3.0)
    await world.send_signal(controller, signal.SIGCONT)
    await world.start(slave)


def cut(*links: tuple[str, str]) -> Fault:
    """Return a fault that cuts links between roles; half of the times connections close."""

    async def act(world: World) -> None:
        roles = await world.roles()
        named = [(roles[one], roles[other]) for one, other in links]
        await world.change_links(named, resets=world.rng.random() < 0.5)
        await asyncio.sleep(world.span_s)
        await world.heal_links()

    return act


async def cut_and_kill_master(world: World) -> None:
    """Kill the master while one slave has not heard it for a while."""
    roles = await world.roles()
    await world.change_links([(roles["master"], roles["slave"])])
    await asyncio.sleep(world.span_s)
    await world.send_signal(roles["master"], signal.SIGKILL)
    await world.wait(0.5)
    await world.heal_links()
    await world.start(roles["master"])


async def flap_links(world: World) -> None:
    """Cut and heal links of the master several times."""
    roles = await world.roles()
    for _ in range(world.rng.randint(2, 5)):
        peer = roles[world.rng.choice(("slave", "other", "controller", "client"))]
        await world.change_links([(roles["master"], peer)], resets=world.rng.random() < 0.5)
        await world.wait(0.8)
        await world.heal_links()
        await world.wait(0.4)


async def slow_links(world: World) -> None:
    """Delay, limit or lose packets between the master and some of the others."""
    roles = await world.roles()
    peers = world.rng.choice(
        (("slave",), ("slave", "other"), ("controller",), ("client",),
         ("slave", "other", "controller", "client"))
    )  # fmt: skip
    quality = world.rng.choice(
        (Quality(delay_s=0.05), Quality(delay_s=0.3), Quality(bytes_per_s=100_000),
         Quality(loss=0.05), Quality(loss=0.2), Quality(0.02, 300_000, 0.02))
    )  # fmt: skip
    await world.change_links([(roles["master"], roles[each]) for each in peers], quality)
    await world.wait(4.0)
    await world.heal_links()


async def slow_links_and_kill_master(world: World) -> None:
    roles = await world.roles()
    links = [(roles["master"], roles[each]) for each in ("slave", "other")]
    await world.change_links(links, Quality(delay_s=0.1, loss=0.05))
    await world.wait()
    await world.restart(roles["master"])
    await world.heal_links()


async def step_clock(world: World) -> None:
    """Set the wall clock of one process an hour back or forward, and right again."""
    name = world.rng.choice(sorted(world.group.skews))
    world.set_clock(name, step_ms=world.rng.choice((-_HOUR_MS, _HOUR_MS)))
    await world.wait(3.0)
    world.heal_clocks()


async def step_clock_and_kill_master(world: World) -> None:
    for name in (await world.master(), await world.controller()):
        world.set_clock(name, step_ms=world.rng.choice((-_HOUR_MS, _HOUR_MS)))
    await world.wait()
    await world.restart(await world.master())
    world.heal_clocks()


async def drift_clocks(world: World) -> None:
    """Freeze a master whose monotonic clock and the controller's differ by up to 8 %."""
    master, controller = await world.master(), await world.controller()
    drift = world.rng.choice((-_DRIFT, _DRIFT))
    world.set_clock(master, rate=1 + drift)
    world.set_clock(controller, rate=1 - drift)
    await world.wait(2.0)
    await world.freeze(master, world.rng.uniform(1.0, 4.0))
    world.heal_clocks()


async def drift_clock_and_isolate_master(world: World) -> None:
    """Leave a master with a slow clock to its clients alone."""
    roles = await world.roles()
    world.set_clock(roles["master"], rate=1 - _DRIFT)
    world.set_clock(roles["controller"], rate=1 + _DRIFT)
    await world.wait(2.0)
    await world.change_links(
        [(roles["master"], roles[each]) for each in ("slave", "other", "controller")]
    )
    await asyncio.sleep(world.span_s)
    await world.heal_links()
    world.heal_clocks()


async def kill_etcd_member(world: World) -> None:
    roles = await world.roles()
    await world.restart(roles["etcd"])


async def freeze_etcd_member(world: World) -> None:
    roles = await world.roles()
    await world.freeze(roles["etcd"], world.span_s)


async def kill_two_etcd_members(world: World) -> None:
    """Leave etcd without a majority."""
    roles = await world.roles()
    await world.restart(roles["etcd"], roles["etcd2"], span_s=world.span_s)


async def kill_etcd_member_and_master(world: World) -> None:
    roles = await world.roles()
    await world.restart(roles["etcd"], roles["master"])


PROCESSES: tuple[Kind, ...] = (
    *(
        Kind(each.__name__, each)
        for each in (
            kill_master, stop_master, freeze_master, kill_slave, freeze_slave, kill_two_masters,
            kill_all, kill_controller, kill_controller_and_master,
            freeze_controller_and_kill_slave, step_clock, step_clock_and_kill_master, drift_clocks,
        )
    ),
    *(
        Kind(each.__name__, each, LONG)
        for each in (
            kill_controller_for_long, freeze_controller_for_long, kill_master_without_controller,
        )
    ),
)  # fmt: skip
"""Faults of processes and their clocks, which need no network of namespaces."""


def _cuts(**links: tuple[tuple[str, str], ...]) -> tuple[Kind, ...]:
    """Return each cut twice: shorter than all leases, and longer."""
    return tuple(
        Kind(f"{name}{suffix}", cut(*each), span_s)
        for name, each in links.items()
        for suffix, span_s in (("", SHORT), ("_for_long", LONG))
    )


def _from(role: str, *others: str) -> tuple[tuple[str, str], ...]:
    return tuple((role, each) for each in others)


LINKS: tuple[Kind, ...] = (
    *_cuts(
        cut_master_and_slave=_from("master", "slave"),
        cut_master_and_slaves=_from("master", "slave", "other"),
        cut_master_and_controller=_from("master", "controller"),
        cut_slave_and_controller=_from("slave", "controller"),
        cut_slaves=_from("slave", "other"),
        cut_client_and_master=_from("client", "master"),
        cut_client_from_others=_from("client", "slave", "other", "controller"),
        leave_master_to_clients=_from("master", "slave", "other", "controller"),
        isolate_master=_from("master", "slave", "other", "controller", "client", "namesrv"),
        isolate_slave=_from("slave", "master", "other", "controller", "client", "namesrv"),
        isolate_controller=_from("controller", "master", "slave", "other", "client", "namesrv"),
    ),
    Kind("drift_clock_and_isolate_master", drift_clock_and_isolate_master, LONG),
    Kind("cut_and_kill_master", cut_and_kill_master, SHORT),
    Kind("flap_links", flap_links),
    Kind("slow_links", slow_links),
    Kind("slow_links_and_kill_master", slow_links_and_kill_master),
)
"""Faults of links, in a network of namespaces."""

_ALL_ETCD = _from("controller", "etcd", "etcd2", "etcd3")

SHARED: tuple[Kind, ...] = (
    *_cuts(
        cut_controller_and_etcd=_ALL_ETCD,
        cut_controller_and_etcd_member=_ALL_ETCD[:1],
        isolate_etcd_member=_from("etcd", "etcd2", "etcd3", "controller"),
        isolate_leading_controller=(
            *_ALL_ETCD, *_from("controller", "master", "slave", "other", "namesrv"),
        ),
        cut_master_and_leading_controller=_from("master", "controller"),
    ),
    Kind("kill_etcd_member", kill_etcd_member),
    Kind("freeze_etcd_member_for_long", freeze_etcd_member, LONG),
    Kind("kill_two_etcd_members_for_long", kill_two_etcd_members, LONG),
    Kind("kill_etcd_member_and_master", kill_etcd_member_and_master),
    Kind("kill_leading_controller", kill_controller),
    Kind("freeze_leading_controller_for_long", freeze_controller_for_long, LONG),
    Kind("kill_leading_controller_and_master", kill_controller_and_master),
    Kind("kill_master", kill_master),
    Kind("stop_master", stop_master),
)  # fmt: skip
"""Faults of two controllers that share their state in three members of etcd."""
