"""`rocketpy cluster`: state and health checks of brokers and name servers."""

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.client.cluster.name_servers import parse_addresses
from rocketpy.terminal.common import CONTEXT, namesrv_option, output_option, run
from rocketpy.terminal.completion import broker_names, topic_names
from rocketpy.terminal.render import show


@click.group("cluster", context_settings=CONTEXT, epilog="Example: rocketpy cluster list")
def command() -> None:
    """Show brokers and name servers."""


@command.command("list", epilog="Example: rocketpy cluster list -o json")
@click.option("--cluster", default="", help="Only this cluster.")
@namesrv_option
@output_option
def list_(*, cluster: str, namesrv: str, output: str) -> int:
    """List brokers with version and load."""

    async def work() -> list[rocketpy_admin.BrokerStatus]:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await admin.brokers(cluster)

    rows = [
        {
            "cluster": each.cluster,
            "broker": each.broker,
            "id": each.broker_id,
            "address": each.address,
            "version": each.version,
            "in_tps": each.in_tps,
            "out_tps": each.out_tps,
            "stored_today": each.stored_today,
            "delivered_today": each.delivered_today,
            "disk_ratio": each.disk_ratio,
            "error": each.error,
        }
        for each in run(work())
    ]
    table = [key for key in (rows[0] if rows else {}) if key != "disk_ratio"]
    show(rows, output, columns=table, empty="no brokers")
    return 0


@command.command("ping", epilog="Example: rocketpy cluster ping -n 127.0.0.1:9876")
@click.option("-b", "--broker", "brokers", multiple=True, metavar="HOST:PORT", help="Ask this.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
    show_default=True,
    help="Seconds.",
)
@namesrv_option
@output_option
def ping(*, brokers: tuple[str, ...], timeout: float, namesrv: str, output: str) -> int:
    """Check that servers answer.

    Asks every name server, or with -b the given brokers. The exit code is 0 if all of them
    answer, else 1, as health checks expect.
    """

    async def work() -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        async with rocketpy_admin.connect(namesrv, timeout=timeout) as admin:
            for address in brokers or parse_addresses(namesrv):
                ask = admin.ping_broker if brokers else admin.ping_namesrv
                took_ms = await ask(address) * 1_000
                role = "broker" if brokers else "namesrv"
                rows.append({"role": role, "address": address, "ms": round(took_ms, 3)})
        return rows

    show(run(work()), output)
    return 0


@command.command("brokers", epilog="Example: rocketpy cluster brokers --key putTps")
@click.option(
    "-b",
    "--broker",
    default="",
    shell_complete=broker_names,
    metavar="NAME",
    help="Only this cluster.",
)
@click.option("--key", "keys", multiple=True, help="Only this key; may be repeated.")
@namesrv_option
@output_option
def brokers(*, broker: str, keys: tuple[str, ...], namesrv: str, output: str) -> int:
    """Show the runtime values that brokers report."""

    async def work() -> list[rocketpy_admin.BrokerStatus]:
        async with rocketpy_admin.connect(namesrv) as admin:
            return await admin.brokers()

    found = [each for each in run(work()) if broker in {"", each.broker}]
    if not found:
        raise click.ClickException(f"no broker {broker} is registered".rstrip())
    silent = [each for each in found if each.error]
    rows = [
        {"broker": each.broker, "id": each.broker_id, "key": key, "value": value}
        for each in found
        for key, value in sorted(each.runtime.items())
        if not keys or key in keys
    ]
    show(rows, output)
    if silent:
        raise click.ClickException(f"{silent[0].broker} does not answer: {silent[0].error}")
    return 0


@command.command("stats", epilog="Example: rocketpy cluster stats orders")
@click.argument("topics", nargs=-1, shell_complete=topic_names)
@namesrv_option
@output_option
def stats(*, topics: tuple[str, ...], namesrv: str, output: str) -> int:
    """Show rates of topics and their groups (all topics by default)."""

    async def work() -> list[rocketpy_admin.TopicStatistics]:
        async with rocketpy_admin.connect(namesrv) as admin:
            names = topics or await admin.topics()
            return [row for name in names for row in await admin.topic_statistics(name)]

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
        for each in run(work())
    ]
    show(rows, output, empty="no topics")
    return 0


@command.command("writable", epilog="Example: rocketpy cluster writable broker-a off")
@click.argument("broker", shell_complete=broker_names)
@click.argument("state", type=click.Choice(["on", "off"]))
@namesrv_option
@output_option
def writable(*, broker: str, state: str, namesrv: str, output: str) -> int:
    """Let producers send to a broker, or stop them (before maintenance)."""

    async def work() -> int:
        async with rocketpy_admin.connect(namesrv) as admin:
            await admin.broker_addresses(broker=broker)
            if state == "on":
                return await admin.add_write_permission(broker)
            return await admin.wipe_write_permission(broker)

    show([{"broker": broker, "writable": state == "on", "topics": run(work())}], output)
    return 0
