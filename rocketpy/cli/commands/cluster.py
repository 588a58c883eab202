"""`rocketpy cluster` and `rocketpy check`: state and health checks of brokers and name servers."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import cast

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.admin.results import Answers
from rocketpy.client.cluster.name_servers import parse_addresses
from rocketpy.errors import ClientError, RocketPyError, ServersFailedError
from rocketpy.runtime.config.suggestions import hint
from rocketpy.terminal.cluster_calls import ask, exit_code
from rocketpy.terminal.common import CONTEXT, namesrv_option, output_option, run
from rocketpy.terminal.completion import broker_names, topic_names
from rocketpy.terminal.parameters import FiniteRange, server_address, topic_name
from rocketpy.terminal.render import show
from rocketpy.terminal.suggestions import HintingGroup, check_keys

_AT_ONCE = 32
"""Limit of concurrent queries of topics."""
_SENDS_REFUSED = ("puts_refused", "no_write_permission", "sends_not_accepted_yet")
"""Codes of reasons why a broker is not ready that also mean that producers cannot send."""


@click.group(
    "cluster",
    cls=HintingGroup,
    context_settings=CONTEXT,
    epilog="Example: rocketpy cluster list",
)
def command() -> None:
    """Show brokers and name servers."""


@command.command("list", epilog="Example: rocketpy cluster list -o json")
@click.option("--cluster", default="", help="Only this cluster.")
@namesrv_option
@output_option
def list_(*, cluster: str, namesrv: str, output: str) -> int:
    """List brokers with role, state and lag of the log, version and load.

    The reason says why a slave follows no master, or a master refuses or does not confirm sends.
    """

    async def work(
        admin: rocketpy_admin.Admin,
    ) -> tuple[list[rocketpy_admin.BrokerStatus], list[rocketpy_admin.ReplicaStatus]]:
        await check_cluster(admin, cluster)
        # Replicas second: a broker that does not answer is then not waited for again.
        return await admin.brokers(cluster), await admin.replicas(cluster)

    found, replicas = ask(namesrv, work)
    replica_of = {each.address: each for each in replicas}
    none = rocketpy_admin.ReplicaStatus(cluster="", broker="", broker_id=0, address="", role="")
    rows = [
        {
            "cluster": each.cluster,
            "broker": each.broker,
            "id": each.broker_id,
            "role": (replica := replica_of.get(each.address, none)).role,
            "state": replica.state,
            "reason": replica.reason or _send_problem(replica),
            "lag_bytes": replica.lag_bytes if replica.lag_bytes >= 0 else None,
            "in_sync": replica.in_sync,
            "address": each.address,
            "version": each.version,
            "rocketpy": each.runtime.get("rocketpyVersion", ""),
            "in_tps": each.in_tps,
            "out_tps": each.out_tps,
            "stored_today": each.stored_today,
            "delivered_today": each.delivered_today,
            "disk_ratio": each.disk_ratio,
            "not_ready": each.runtime.get("rocketpyNotReady", ""),
            "error": each.error,
        }
        for each in found
    ]
    table = [key for key in (rows[0] if rows else {}) if key != "disk_ratio"]
    show(rows, output, columns=table, empty="no brokers")
    return exit_code(silent_brokers(found))


@command.command("status", epilog="Example: rocketpy cluster status")
@click.option("--cluster", default="", help="Only this cluster.")
@namesrv_option
@output_option
def status(*, cluster: str, namesrv: str, output: str) -> int:
    """Show broker groups: master, epoch, sync-state set, lag and lease.

    With a controller, the rows are the replicas that it knows, also lost ones. `in_set` says
    whether a replica may be elected; without a controller, whether it is in sync. Warnings follow
    the table, and the exit code is 1 if there is one: no master, a replica that is not alive or
    does not answer, or a sync-state set at its minimum.
    """

    async def work(admin: rocketpy_admin.Admin) -> list[rocketpy_admin.GroupStatus]:
        await check_cluster(admin, cluster)
        return await admin.group_statuses(cluster)

    found = ask(namesrv, work)
    rows = [
        {
            "cluster": group.cluster,
            "broker": group.broker,
            "id": each.broker_id,
            "address": each.address,
            "role": each.role,
            "alive": each.is_alive,
            "in_set": each.is_member,
            "state": each.state,
            "lag_bytes": each.lag_bytes if each.lag_bytes >= 0 else None,
            "epoch": group.epoch or None,
            "set_epoch": group.set_epoch or None,
            "lease_ms": group.lease_ms if each.role == "MASTER" else None,
            "controller": group.controller,
            "reason": each.reason,
            "warnings": group.warnings,
        }
        for group in found
        for each in group.replicas
    ]
    columns = [key for key in (rows[0] if rows else {}) if key != "warnings"]
    show(rows, output, columns=columns, empty="no brokers")
    for group in found:
        for warning in group.warnings:
            click.echo(f"warning: {group.broker}: {warning}", err=True)
    return 1 if any(group.warnings for group in found) else 0


async def check_cluster(admin: rocketpy_admin.Admin, cluster: str) -> None:
    """Check that a cluster is registered, when a command names one.

    Raises:
        click.ClickException: it is not; suggests a similar name.
    """
    if not cluster:
        return
    known = (await admin.servers.cluster_info()).cluster_addr_table
    if cluster not in known:
        raise click.ClickException(f"cluster {cluster} does not exist{hint(cluster, known)}")


def silent_brokers(
    found: Iterable[rocketpy_admin.BrokerStatus],
) -> dict[str, RocketPyError]:
    """Return the failures of brokers that did not answer, by name."""
    return {
        f"{each.broker}:{each.broker_id}" if each.broker_id else each.broker: ClientError(
            each.error
        )
        for each in found
        if each.error
    }


@command.command("ping", epilog="Example: rocketpy cluster ping --ready --all")
@click.option("-b", "--broker", "brokers", multiple=True, type=server_address, metavar="HOST:PORT",
              help="Ask this.")  # fmt: skip
@click.option("--controller", "controllers", multiple=True, type=server_address,
              metavar="HOST:PORT", help="Ask this.")  # fmt: skip
@click.option(
    "--all", "every", is_flag=True, help="Ask every name server and every registered broker."
)
@click.option(
    "--ready",
    is_flag=True,
    help="Also ask whether they serve: routes, messages (disk, store, registration), elections.",
)
@click.option(
    "--timeout",
    type=FiniteRange(0, min_open=True),
    default=3.0,
    show_default=True,
    help="Seconds.",
)
@namesrv_option
@output_option
def ping(
    *,
    brokers: tuple[str, ...],
    controllers: tuple[str, ...],
    every: bool,
    ready: bool,
    timeout: float,
    namesrv: str,
    output: str,
) -> int:
    """Check that servers answer.

    Asks every name server, or the brokers of -b and the controllers of --controller. The exit code
    is 0 if all of them answer, else 1, as health checks expect. With --ready, each of them must
    also serve: a broker clients, a controller brokers, for which it or another one has to lead.
    """
    if (brokers or controllers) and every:
        raise click.UsageError("give --broker and --controller, or --all")

    async def work() -> tuple[dict[str, dict[str, object]], dict[str, RocketPyError]]:
        async with rocketpy_admin.connect(namesrv, timeout=timeout) as admin:
            roles = dict.fromkeys(brokers, "broker") | dict.fromkeys(controllers, "controller")
            if not roles:
                roles = dict.fromkeys(parse_addresses(namesrv), "namesrv")
            if every:
                roles |= dict.fromkeys((await admin.broker_addresses()).values(), "broker")

            async def ask(address: str) -> dict[str, object]:
                return await _ping(admin, roles[address], address, ready=ready)

            return await admin.servers.each({address: address for address in roles}, ask)

    found, failures = run(work())
    show(list(found.values()), output)
    is_ready = not any(row.get("not_ready") for row in found.values())
    return exit_code(failures) or (0 if is_ready else 1)


async def _ping(
    admin: rocketpy_admin.Admin, role: str, address: str, *, ready: bool
) -> dict[str, object]:
    """Return the row of one server; raises ClientError if it does not answer."""
    ask, check = {
        "namesrv": (admin.ping_namesrv, admin.namesrv_not_ready),
        "broker": (admin.ping_broker, admin.broker_not_ready),
        "controller": (admin.ping_controller, admin.controller_not_ready),
    }[role]
    row: dict[str, object] = {"role": role, "address": address}
    row["ms"] = round(await ask(address) * 1_000, 3)
    if ready:
        row["not_ready"] = await check(address)
    return row


@command.command("brokers", epilog="Example: rocketpy cluster brokers --key putTps")
@click.option(
    "-b",
    "--broker",
    default="",
    shell_complete=broker_names,
    metavar="NAME",
    help="Only this broker.",
)
@click.option("--key", "keys", multiple=True, help="Only this key; may be repeated.")
@namesrv_option
@output_option
def brokers(*, broker: str, keys: tuple[str, ...], namesrv: str, output: str) -> int:
    """Show the runtime values that brokers report."""
    every = ask(namesrv, lambda admin: admin.brokers())
    found = [each for each in every if broker in {"", each.broker}]
    if not found:
        raise click.ClickException(f"no broker {broker} is registered".rstrip())
    check_keys(keys, [each.runtime for each in found if not each.error])
    rows = [
        {"broker": each.broker, "id": each.broker_id, "key": key, "value": value}
        for each in found
        for key, value in sorted(each.runtime.items())
        if not keys or key in keys
    ]
    show(rows, output)
    return exit_code(silent_brokers(found))


@command.command("stats", epilog="Example: rocketpy cluster stats orders")
@click.argument("topics", nargs=-1, type=topic_name, shell_complete=topic_names)
@namesrv_option
@output_option
def stats(*, topics: tuple[str, ...], namesrv: str, output: str) -> int:
    """Show rates of topics and their groups (all topics by default).

    Rates are of the last minute. in_24h and out_24h are counted by brokers as Apache's do: over the
    last day from samples of each hour, without those over the last hour from samples of each ten
    minutes, else over the last minute. So a new topic's may be 0 some minutes after its messages;
    `topic status` has the number of messages stored.
    """

    async def work(admin: rocketpy_admin.Admin) -> Answers[rocketpy_admin.TopicStatistics]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def statistics(topic: str) -> Answers[rocketpy_admin.TopicStatistics]:
            async with gate:
                return await admin.topic_statistics(topic)

        names = topics or await admin.topics()
        every: Answers[rocketpy_admin.TopicStatistics] = Answers()
        for answers in await asyncio.gather(*map(statistics, names)):
            every += answers
            every.failures |= answers.failures
        return every

    found = ask(namesrv, work)
    rows = [
        {
            "topic": each.topic,
            "group": each.group,
            "in_tps": each.in_tps,
            "out_tps": each.out_tps,
            "in_24h": each.in_24h,
            "out_24h": each.out_24h,
            "lag": each.lag,
        }
        for each in found
    ]
    show(rows, output, empty="no topics")
    return exit_code(found.failures)


@command.command("writable", epilog="Example: rocketpy cluster writable broker-a off")
@click.argument("broker", shell_complete=broker_names)
@click.argument("state", type=click.Choice(["on", "off"]))
@namesrv_option
@output_option
def writable(*, broker: str, state: str, namesrv: str, output: str) -> int:
    """Let producers send to a broker, or stop them (before maintenance)."""
    failures: dict[str, RocketPyError] = {}

    async def work(admin: rocketpy_admin.Admin) -> int:
        await admin.broker_addresses(broker=broker)
        change = admin.add_write_permission if state == "on" else admin.wipe_write_permission
        try:
            return await change(broker)
        except ServersFailedError as error:
            if not error.done:
                raise
            failures.update(error.failures)
            return max(cast("dict[str, int]", error.done).values())

    show([{"broker": broker, "writable": state == "on", "topics": ask(namesrv, work)}], output)
    return exit_code(failures)


@click.group(
    "check",
    cls=HintingGroup,
    context_settings=CONTEXT,
    epilog="Example: rocketpy check replication --min-in-sync 2",
)
def check_command() -> None:
    """Check a cluster, for monitoring."""


@check_command.command(
    "replication",
    epilog="Example: rocketpy check replication --min-in-sync 2 --max-lag-bytes 67108864",
)
@click.option("--cluster", default="", help="Only this cluster.")
@click.option(
    "--min-in-sync",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Copies in sync that each broker name must have, the master's included.",
)
@click.option(
    "--max-lag-bytes",
    type=click.IntRange(min=0),
    help="Most bytes that a slave may be behind its master.",
)
@namesrv_option
@output_option
def replication(
    *, cluster: str, min_in_sync: int, max_lag_bytes: int | None, namesrv: str, output: str
) -> int:
    """Check that masters and slaves have the same log.

    Prints a row for each problem. The exit code is 0 if there is none, else 1; also when the
    name servers do not answer.

    A broker name is a problem if its master is not registered, refuses sends, or has fewer copies
    in sync than --min-in-sync or than its sends wait for (inSyncReplicas); a broker, if it does
    not answer, is a slave that follows no master, or lags more than --max-lag-bytes.
    """

    async def work(
        admin: rocketpy_admin.Admin,
    ) -> tuple[list[rocketpy_admin.BrokerStatus], list[rocketpy_admin.ReplicaStatus]]:
        return await admin.brokers(cluster), await admin.replicas(cluster)

    statuses, found = ask(namesrv, work)
    reasons = {each.address: each.runtime.get("rocketpyNotReady", "") for each in statuses}
    refusing = {
        address: reason
        for address, reason in reasons.items()
        if any(f"{code}:" in reason for code in _SENDS_REFUSED)
    }
    problems = problems_of(found, min_in_sync, max_lag_bytes, refusing)
    if not found:
        problems.append(_problem_row(cluster, "", "", "no broker is registered"))
    show(problems, output, empty=f"ok: {len(found)} replicas")
    return 1 if problems else 0


def problems_of(
    replicas: list[rocketpy_admin.ReplicaStatus],
    min_in_sync: int,
    max_lag_bytes: int | None,
    refusing: Mapping[str, str] | None = None,
) -> list[dict[str, object]]:
    """Return a row for each problem.

    Args:
        replicas: all replicas.
        min_in_sync: copies in sync that each broker name must have.
        max_lag_bytes: most bytes that a slave may lag; None: any number.
        refusing: why masters that are not ready refuse sends, by address.
    """
    rows: list[dict[str, object]] = []
    masters = {(each.cluster, each.broker): each for each in replicas if each.broker_id == 0}
    for cluster, broker in sorted({(each.cluster, each.broker) for each in replicas}):
        master = masters.get((cluster, broker))
        problem = ""
        if master is None:
            problem = "no master is registered"
        elif not master.error and (found := _send_problem(master)):
            problem = found
        elif not master.error and (found := (refusing or {}).get(master.address, "")):
            problem = f"sends are refused: {found}"
        elif not master.error and master.copies_in_sync < min_in_sync:
            problem = f"{master.copies_in_sync} of {min_in_sync} copies in sync"
        if problem:
            rows.append(_problem_row(cluster, broker, "", problem))
    for each in replicas:
        problem = _problem_of(each, max_lag_bytes)
        if problem:
            rows.append(_problem_row(each.cluster, each.broker, str(each.broker_id), problem))
    return rows


def _send_problem(master: rocketpy_admin.ReplicaStatus) -> str:
    """Return why a master refuses or does not confirm sends, or an empty string."""
    if master.send_refusal:
        return f"sends are refused: {master.send_refusal} ({master.copies_in_sync} in sync)"
    if master.copies_in_sync < master.copies_needed:
        copies = f"{master.copies_in_sync} of {master.copies_needed} copies in sync"
        return f"sends are not confirmed: {copies}"
    return ""


def _problem_of(replica: rocketpy_admin.ReplicaStatus, max_lag_bytes: int | None) -> str:
    if replica.error:
        return replica.error
    if replica.broker_id == 0:
        return ""
    if replica.state != "STREAMING":
        reason = f": {replica.reason}" if replica.reason else ""
        return f"{replica.state or 'unknown state'}{reason}"
    if max_lag_bytes is not None and not 0 <= replica.lag_bytes <= max_lag_bytes:
        lag = "unknown" if replica.lag_bytes < 0 else f"{replica.lag_bytes} bytes"
        return f"lag {lag}, allowed {max_lag_bytes}"
    return ""


def _problem_row(cluster: str, broker: str, broker_id: str, problem: str) -> dict[str, object]:
    return {"cluster": cluster, "broker": broker, "id": broker_id, "problem": problem}
