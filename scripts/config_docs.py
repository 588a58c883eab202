"""Writes docs/configuration.md from the configuration dataclasses.

    python scripts/config_docs.py            # write it
    python scripts/config_docs.py --check    # exit code 1 when it is out of date

What a key does comes from the `Attributes` section of its dataclass; families of Apache's keys
that the docstring does not repeat one by one are described in `MORE`.
"""

# ruff: noqa: E501, INP001 - sentences stand on one line; not a package

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import get_type_hints

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.failover.config import FailoverConfig
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.client.config import (
    Checked,
    ClientConfig,
    ConsumerConfig,
    PopConsumerConfig,
    ProducerConfig,
    PullConsumerConfig,
    ResponderConfig,
)
from rocketpy.controller.config import ControllerConfig
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.runtime.config.config import Option, camel_case, options_of
from rocketpy.runtime.config.operation import OperationConfig
from rocketpy.runtime.config.refused_keys import REFUSALS
from rocketpy.runtime.config.values import allowed, value_text
from rocketpy.store.config import MessageStoreConfig

OUTPUT = Path(__file__).parent.parent / "docs" / "configuration.md"

INLINE = "A hand-off costs more than the work ([decision 2](decisions/0002-inline-by-default.md))"

APACHE: dict[str, str] = {
    "sendMessageThreadPoolNums": "Apache: 1 to 4 by cores. " + INLINE,
    "pullMessageThreadPoolNums": "Apache: 16 + 2 x cores. " + INLINE,
    "litePullMessageThreadPoolNums": "Apache: 16 + 2 x cores. " + INLINE,
    "queryMessageThreadPoolNums": "Apache: 8 + cores. One Python thread runs at a time anyway",
    "adminBrokerThreadPoolNums": "Apache: 16. One Python thread runs at a time anyway",
    "clientManageThreadPoolNums": "Apache: 32. " + INLINE,
    "consumerManageThreadPoolNums": "Apache: 32. " + INLINE,
    "heartbeatThreadPoolNums": "Apache: by cores, 32 at most. " + INLINE,
    "serverSelectorThreads": "Apache: 3. More than one was slower under the GIL",
    "defaultThreadPoolNums": "Apache: 16. " + INLINE,
    "clientRequestThreadPoolNums": "Apache: 8. " + INLINE,
    "storePathRootDir": "Apache: `~/store`. A relative name here, so that nothing is written to a home directory by surprise",
    "fastListenEnable": "Apache always listens there; no client since 4.5.1 needs it",
    "writeBufferHighWaterMark": "Apache: 0, Netty's 64 KiB without a limit above it; ours bounds the memory a slow reader costs",
    "writeBufferLowWaterMark": "Apache: 0, Netty's 32 KiB",
}
"""Where our default is not Apache's, and why."""

MORE: dict[str, str] = {
    "cluster_topic_enable": "the topic named as the cluster may be read and written.",
    "broker_topic_enable": "the topic named as the broker may be read and written.",
    "trace_topic_enable": "create the topic of message traces at start.",
    "msg_trace_topic_name": "name of that topic.",
    "validate_system_topic_when_update_topic": "operators cannot change system topics.",
    "broker_fast_failure_enable": "answer requests that waited too long in a pool with code 2.",
    "start_accept_send_request_time_stamp": "wall time, ms, before which sends are refused; 0 is never.",
    "lite_pull_message_enable": "serve LITE_PULL_MESSAGE (361).",
    "reject_pull_consumer_enable": "ignore heartbeats of pull consumers.",
    "use_server_side_reset_offset": "the broker stores a reset and returns it with the next pull.",
    "notify_consumer_ids_changed_enable": "notify the members of a group when one joins or leaves.",
    "consumer_offset_update_version_step": "commits after which the table counts as changed.",
    "server_load_balancer_enable": "assign queues to clients that ask for it (400).",
    "register_broker_timeout_mills": "limit of one registration, ms.",
}  # fmt: skip

HEAD = """# Configuration

<!-- Written by scripts/config_docs.py; change the dataclasses, or the script, and run it again. -->

## Sources of a value

Highest precedence first:

1. the command line: `-D key=value`, repeatable (and the options that stand for a key: `-p`, `-n`, `--port`, `--host`);
2. the environment: `ROCKETPY_<KEY>` in upper or lower case, with or without underscores and dots (`ROCKETPY_LISTEN_PORT`, `ROCKETPY_LISTENPORT`); `NAMESRV_ADDR` is a source of `namesrvAddr` with the lowest precedence;
3. `live.properties`: changes made while the server ran ([decision 3](decisions/0003-live-configuration.md));
4. the file of `-c`, at most one: Java properties text with Apache's key names, in UTF-8 or else Latin-1;
5. the default.

## Errors

- A wrong value is one sentence with file, line and key, and exit code 2; so is a violated rule between keys.
- An unknown key in a file is a warning with the nearest known key; `--strict-config` makes it an error. On the command line it is always an error.
- An unknown key that misspells, abbreviates or extends one which decides what is stored, where, how many copies there are, which servers are asked, or which clients may connect (`brokerRol`, `storePathRoot`, `namesrvAddress`, `aclEnabled`) is an error, also in the environment, until it is corrected or accepted with `--accept-ignored KEY`.
- A key of Apache's without effect in RocketPy is a warning, unless it decides what is stored, where, how many copies there are, which servers are asked, or which clients may connect: then a value other than Apache's default is an error ([below](#refused-keys)), unless a source of higher precedence replaces it. `--accept-ignored KEY`, repeatable, makes it a warning.
- An environment variable `ROCKETPY_...` without a matching key is ignored, because other programs may use the prefix.
- A path that begins with `~` or `$`, or contains `${`, `;`, a comment (`/data # ssd`) or quotes at its ends, or the name of a directory that contains `,`, is an error: nothing is replaced in it, and several directories are not supported. So is a `brokerName` or `brokerClusterName` with quotes at its ends.
- Rules between keys are checked before a server opens anything: no port is given twice (`listenPort`, the VIP port, `healthListenPort`, the ports of both servers of `standalone`), `bindAddress` and `healthBindAddress` are addresses of this machine, `brokerIP1` and `brokerIP2` have an address that other machines can use (not `0.0.0.0` or `::`), `storePathRootDir` and `storePathCommitLog` are no files, the commit log has a separate directory, and TLS files can be read.
- `--check-config` prints every error and warning, rules between keys included, starts nothing, and ends with 0 (none), 1 (warnings only) or 2 (errors; with `--strict-config` also warnings). It is meant for CI: `rocketpy broker -c broker.conf --check-config`.
- `--print-config` prints every effective value, with secrets hidden, and warnings on standard error; at start the log lists all values that differ from their defaults.

Each case has a test: [bad-input.md](bad-input.md).

## Reading the tables

*Live* keys may be changed while the server runs, by UPDATE_BROKER_CONFIG (25), UPDATE_NAMESRV_CONFIG (318) or UPDATE_CONTROLLER_CONFIG (1009); other keys are refused with code 16. Names, units and defaults are Apache's unless the last column says otherwise; "(ours)" marks keys that Apache does not have.
Times are milliseconds and sizes bytes unless the table says otherwise; options of the client are seconds or a timedelta.
"""


REFUSED = """
## Refused keys

Keys of Apache's that RocketPy does not have and must not ignore, for broker and name server alike, also from the environment. Apache's default (off, empty, one copy) is accepted silently. Any other value is an error with exit code 2, until it is removed or accepted with `--accept-ignored KEY`.

| keys | why | what to do |
|---|---|---|
"""


def refused_table() -> str:
    """Return the section about refused keys."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, refusal in REFUSALS.items():
        groups.setdefault((refusal.reason, refusal.advice), []).append(f"`{key}`")
    rows = [f"| {', '.join(keys)} | {why} | {do} |\n" for (why, do), keys in groups.items()]
    rows.append(
        "| `configBlackList` | it names keys that clients can change while the server runs "
        "| protect the port by the network and remove the key |\n"
    )
    return REFUSED + "".join(rows)


def main() -> int:
    """Write the page, or compare it."""
    text = render()
    if "--check" in sys.argv[1:]:
        return 0 if OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text else 1
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


def render() -> str:
    """Return the whole page.

    Raises:
        ValueError: a key that nothing describes.
    """
    parts = [HEAD]
    for title, words, classes in (
        ("Broker", "`broker.conf`, `rocketpy broker -c`: the broker itself.", [BrokerConfig]),
        ("Message store", "The same file: the store directory.", [MessageStoreConfig]),
        (
            "Replication",
            "The same file: master and slaves ([Replication](replication.md)). `brokerRole`, `brokerId` and `haListenPort` are above.",
            [ReplicationConfig],
        ),
        (
            "Fail-over",
            "The same file: a broker of a group whose master is named by a controller ([Fail-over](guide/failover.md)). `brokerRole` and `brokerId` are given by it, and `minInSyncReplicas` is 2 unless it is set.",
            [FailoverConfig],
        ),
        (
            "Remoting server",
            "The same file, and that of the name server: connections, limits, TLS. The broker's port is `listenPort` above.",
            [RemotingServerConfig],
        ),
        (
            "Logs and health",
            "The same file, and that of the name server ([Running servers](guide/servers.md)).",
            [OperationConfig],
        ),
        ("Name server", "`namesrv.conf`, `rocketpy namesrv -c`.", [NamesrvConfig]),
        (
            "Controller",
            "`controller.conf`, `rocketpy controller -c`; the file of the name server with `enableControllerInNamesrv=true`. What a controller does: [Fail-over](failover.md). Refused are `controllerType=jRaft`, and more than one address in `controllerDLegerPeers` without `controllerStorage=etcd`.",
            [ControllerConfig],
        ),
    ):
        parts.append(f"\n## {title}\n\n{words}\n\n" + "".join(map(file_table, classes)))
    parts.append(refused_table())
    parts.append(
        "\n## Client\n\nThe client is configured in Python: keyword arguments of `rocketpy.connect` and of the client's methods below;\n"
        "connections by `remoting=RemotingClientConfig(...)`. `NAMESRV_ADDR` is used when no name server is given.\n"
    )
    for title, config_class in (
        ("rocketpy.connect", ClientConfig),
        ("client.producer", ProducerConfig),
        ("client.consumer", ConsumerConfig),
        ("client.responder", ResponderConfig),
        ("client.pull_consumer", PullConsumerConfig),
        ("client.pop_consumer", PopConsumerConfig),
    ):
        base = config_class.__base__
        words = "" if base is Checked else "The options of `client.consumer`, and:\n\n"
        parts.append(f"\n### {title}\n\n{words}{client_table(config_class)}")
    parts.append(
        "\n### RemotingClientConfig\n\n"
        "The attributes have the keys' names in snake case; the `tls.` keys are those of `TlsClientConfig`, without `tls.client.`:\n\n"
        "```python\n"
        "import rocketpy\n"
        "from rocketpy.remoting.config import RemotingClientConfig, TlsClientConfig\n\n"
        'tls = TlsClientConfig(enable=True, auth_server=True, trust_cert_path="ca.pem")\n'
        'client = rocketpy.connect("127.0.0.1:9876", remoting=RemotingClientConfig(tls=tls))\n'
        "```\n\n" + file_table(RemotingClientConfig)
    )
    return "".join(parts)


def file_table(config_class: type) -> str:
    """Return the table of a dataclass that a file fills."""
    lines = ["| key | default | values | live | what it does |", "|---|---|---|---|---|"]
    for each in options_of(config_class):
        if each.path[0] in {"server", "operation"}:
            continue  # has a table of its own
        owner = owner_of(config_class, each.path)
        apache = APACHE.get(each.key, "")
        what = describe(owner, each.path[-1]) + (f" *{apache}.*" if apache else "")
        if each.only_with:
            what += (
                f" Without effect, and a warning, while `{camel_case(each.only_with[-1])}` is 0."
            )
        live = "yes" if each.live else ""
        cells = (f"`{each.key}`", default_text(each), allowed_text(each), live, what)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def client_table(config_class: type) -> str:
    """Return the table of a dataclass that keyword arguments fill."""
    lines = ["| name | default | type | what it does |", "|---|---|---|---|"]
    inherited = getattr(config_class.__base__, "__dataclass_fields__", {})
    for each in dataclasses.fields(config_class):
        if each.name in inherited:
            continue
        cells = (f"`{each.name}`", argument_default(each.default), type_text(each.type))
        lines.append("| " + " | ".join((*cells, describe(config_class, each.name))) + " |")
    return "\n".join(lines) + "\n"


def type_text(kind: object) -> str:
    """Return a type in words."""
    if getattr(kind, "__name__", "") in {"int", "str", "float", "bool", "Serializer"}:
        return str(getattr(kind, "__name__", ""))
    words = re.sub(r"(?<!['\w.])(?:[a-z_]+\.)+(?=[A-Za-z])", "", str(kind))
    words = words.removeprefix("<class '").removesuffix("'>")
    # Equal literals share one spelling in a process: the first that was made.
    words = re.sub(r"Literal\[(.*?)\]", _sorted_literal, words)
    return words.replace(" | ", " or ").replace("|", " or ")


def _sorted_literal(match: re.Match[str]) -> str:
    return f"Literal[{', '.join(sorted(match[1].split(', ')))}]"


def argument_default(value: object) -> str:
    """Return the default of a keyword argument as it would be written."""
    if value is dataclasses.MISSING:
        return "required"
    return f"`{value!r}`" if isinstance(value, _PLAIN) else "plain bytes"


_PLAIN = (str, int, float, bool, tuple, type(None))


def owner_of(config_class: type, path: tuple[str, ...]) -> type:
    """Return the dataclass that has the last attribute of a path."""
    for name in path[:-1]:
        config_class = get_type_hints(config_class)[name]
    return config_class


def default_text(each: Option) -> str:
    """Return a default as it would stand in a file."""
    if each.key == "brokerName":
        return "the host's name"
    text = value_text(each.default, each.type)
    return f"`{text}`" if text else "empty"


def allowed_text(each: Option) -> str:
    """Return limits and unit."""
    words = allowed(each.type)
    return words if words == "text" or not each.unit else f"{words}, {each.unit}"


def describe(config_class: type, name: str) -> str:
    """Return what a key does.

    Raises:
        ValueError: nobody says so.
    """
    text = attributes(config_class).get(name) or MORE.get(name) or family(name)
    if text is None:
        raise ValueError(f"{config_class.__name__}.{name}: describe it in the docstring")
    return text.replace("|", "\\|").replace("``", "`")


def family(name: str) -> str | None:
    """Describe the pools and queues of the broker by their names."""
    kind = re.sub(
        r"_(message_)?(processor_)?thread_pool.*|_pool_queue_capacity|_broker_thread.*", "", name
    )
    kind = kind.replace("_", " ")
    if name.endswith("thread_pool_nums"):
        return f"threads for {kind} requests; 0 runs them inline."
    if name.endswith("queue_capacity"):
        return f"{kind} requests that may wait for a thread; more are answered with code 2."
    if match := re.fullmatch(r"wait_time_mills_in_(\w+)_queue", name):
        return f"{match[1].replace('_', ' ')} requests that waited longer are answered with code 2."
    return None


def attributes(config_class: type) -> dict[str, str]:
    """Read the `Attributes` section of a docstring."""
    found: dict[str, str] = {}
    name = ""
    section = (inspect.getdoc(config_class) or "").partition("Attributes:\n")[2]
    for line in section.splitlines():
        if match := re.fullmatch(r"    (\w+): (.*)", line):
            name = match[1]
            found[name] = match[2]
        elif name and line.startswith("        "):
            found[name] += " " + line.strip()
    return found


if __name__ == "__main__":
    sys.exit(main())
