"""Options of the format `rocketmq` that reads take, and those that every format shares.

Names are those of Spark's Kafka source where it has them. What connects is imported where it is
used: the planner of each query on store directories, a new process, is quicker without it.
"""

# ruff: noqa: PLC0415 - see above

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import (
    EXPRESSION_SQL92,
    EXPRESSION_TAG,
    SUB_ALL,
    build_subscription,
)
from rocketpy.spark.offsets import EARLIEST, LATEST, parse_offsets, parse_queues, parse_times
from rocketpy.spark.options import (
    boolean,
    choice,
    duration_ms,
    option,
    pattern,
    size_bytes,
    text,
    whole,
    words,
)

if TYPE_CHECKING:
    from rocketpy.client.credentials import Credentials
    from rocketpy.remoting.config import RemotingClientConfig

Bound = str | Mapping[MessageQueue, int]
"""Where a read begins or ends: `earliest`, `latest`, `group`, or an offset by queue."""

DataLoss = Literal["fail", "skip", "mark"]

_MIB: Final = 1 << 20
_BY_QUEUE: Final = '`{"T":{"broker-a":{"0":23}}}`'


def _servers(value: str) -> tuple[str, ...]:
    from rocketpy.client.cluster.name_servers import parse_addresses

    found = parse_addresses(value)
    if not found:
        raise ValueError("names no address")
    return found


def _bound(*allowed: str) -> Callable[[str], Bound]:
    """Return a parser of a word or of offsets by queue."""
    word = choice(*allowed)

    def parse(value: str) -> Bound:
        return parse_offsets(value) if value.strip().startswith("{") else word(value)

    return parse


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How to reach the cluster; reads and writes have them."""

    nameservers: tuple[str, ...] = option(
        "nameservers",
        _servers,
        about="addresses of the name servers, `host:port;host:port`",
        aliases=("rocketmq.namesrv.addr",),
    )
    namespace: str = option(
        "namespace", text, "", about="topics and groups are those of this namespace"
    )
    access_key: str = option("accessKey", text, "", about="account, where there is access control")
    secret_key: str = option(
        "secretKey", text, "", about="its secret; requests are signed with it", is_secret=True
    )
    security_token: str = option(
        "securityToken", text, "", about="of a temporary account", is_secret=True
    )
    tls_enable: bool = option("tls.enable", boolean, default=False, about="speak TLS")
    tls_auth_server: bool = option(
        "tls.client.authServer",
        boolean,
        default=False,
        about="check the certificates of servers",
    )
    tls_trust_cert_path: str = option(
        "tls.client.trustCertPath",
        text,
        "",
        about="PEM file of the authorities that servers' certificates must come from",
    )
    tls_cert_path: str = option(
        "tls.client.certPath", text, "", about="PEM file of the client's certificate chain"
    )
    tls_key_path: str = option(
        "tls.client.keyPath", text, "", about="PEM file of the client's private key"
    )
    tls_key_password: str = option(
        "tls.client.keyPassword", text, "", about="of that key", is_secret=True
    )
    timeout_ms: int = option(
        "timeoutMs", whole(1, 600_000), 5_000, about="limit of one request about routes or offsets"
    )

    def __post_init__(self) -> None:
        """Check what belongs together.

        Raises:
            ConfigError: one half of an account.
        """
        if bool(self.access_key) != bool(self.secret_key):
            missing = "secretKey" if self.access_key else "accessKey"
            raise ConfigError("is missing; the other key is given", key=missing)

    @property
    def credentials(self) -> "Credentials | None":
        """The account; None leaves it to the environment of the process."""
        from rocketpy.client.credentials import Credentials

        if not self.access_key:
            return None
        return Credentials(self.access_key, self.secret_key, self.security_token)

    @property
    def remoting(self) -> "RemotingClientConfig":
        """Settings of connections."""
        from rocketpy.remoting.config import RemotingClientConfig, TlsClientConfig

        tls = TlsClientConfig(
            enable=self.tls_enable,
            auth_server=self.tls_auth_server,
            key_path=self.tls_key_path,
            key_password=self.tls_key_password,
            cert_path=self.tls_cert_path,
            trust_cert_path=self.tls_trust_cert_path,
        )
        return RemotingClientConfig(tls=tls, connect_timeout_millis=min(3_000, self.timeout_ms))


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """What rows look like, and how many travel together; live reads and store reads have them."""

    include: tuple[str, ...] = option(
        "include",
        words("properties", "hosts", "msgId"),
        ("properties",),
        about="columns beside those that are always there: `properties`, `hosts`, `msgId`; "
        "Spark cannot leave out a column by itself, so fewer are faster",
    )
    columns: tuple[str, ...] | None = option(
        "columns", words(), None, about="exactly these columns, in this order", shown="all"
    )
    value_format: Literal["binary", "string"] = option(
        "valueFormat", choice("binary", "string"), "binary", about="type of the body's column"
    )
    schema_style: Literal["rocketmq", "kafka"] = option(
        "schemaStyle",
        choice("rocketmq", "kafka"),
        "rocketmq",
        about="`kafka` names columns `key`, `value`, `topic`, `partition`, `offset`, `timestamp` "
        "as Spark's Kafka source",
    )
    check_crc: bool = option(
        "checkCrc", boolean, default=False, about="compare each body with its checksum"
    )
    damaged: Literal["fail", "skip"] = option(
        "onDamaged",
        choice("fail", "skip"),
        "fail",
        about="a record that cannot be decoded: fail with its offset, or leave it out",
    )
    batch_rows: int = option(
        "arrow.batchRows", whole(1, 1_000_000), 20_000, about="rows of a record batch"
    )
    batch_bytes: int = option(
        "arrow.batchBytes",
        size_bytes(1 << 10, 1 << 30),
        4 * _MIB,
        about="bytes of records a record batch is made of, about",
        shown="4m",
    )


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions(RowOptions):
    """Which messages are read, and by how many tasks; live reads and store reads have them."""

    sub_expression: str = option(
        "subExpression",
        text,
        SUB_ALL,
        about="only these messages: tags as `a || b`, or SQL92; brokers leave out the others, "
        "and reads of stores pass over other tags by the hash in their queue's entry",
    )
    expression_type: str = option(
        "expressionType",
        choice(EXPRESSION_TAG, EXPRESSION_SQL92),
        EXPRESSION_TAG,
        about="what `subExpression` is: `TAG` or `SQL92`",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        whole(0),
        None,
        about="begin with what was stored at or after this time, ms since 1970",
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        whole(0),
        None,
        about="end before what was stored at or after this time, ms since 1970",
    )
    min_partitions: int | None = option(
        "minPartitions",
        whole(1, 100_000),
        None,
        about="split large ranges until there are about so many; one a queue without it",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", whole(1), None, about="split ranges of more messages"
    )
    fail_on_data_loss: bool | None = option(
        "failOnDataLoss",
        boolean,
        None,
        about="fail when messages that were to be read are gone; `false` is `onDataLoss=skip`",
        shown="true",
    )
    on_data_loss: DataLoss | None = option(  # noqa: RUF009 - a field
        "onDataLoss",
        choice("fail", "skip", "mark"),
        None,
        about="messages that are gone: `fail`, `skip`, or `mark` them by a row for each range: "
        "its first offset, no body, and the property `LOST_UNTIL` with the offset after its last",
        shown="fail",
    )

    def check_choice(self) -> None:
        """Check what belongs together.

        Raises:
            ConfigError: a filter that is none, or options that exclude each other.
        """
        _given(failOnDataLoss=self.fail_on_data_loss, onDataLoss=self.on_data_loss)
        try:
            build_subscription("", self.sub_expression, self.expression_type)
        except ValueError as error:
            raise ConfigError(str(error), key="subExpression") from None

    @property
    def data_loss(self) -> DataLoss:
        """What to do about messages that are gone."""
        if self.on_data_loss is not None:
            return self.on_data_loss
        return "skip" if self.fail_on_data_loss is False else "fail"


@dataclass(frozen=True, kw_only=True)
class ReadOptions(ConnectionOptions, ChoiceOptions):
    """What batch and streaming reads share."""

    subscribe: tuple[str, ...] = option(
        "subscribe", words(), (), about="topics, with commas between them"
    )
    subscribe_pattern: str = option(
        "subscribePattern",
        pattern,
        "",
        about="regular expression that names of topics match as a whole; topics of the system, "
        "retries and dead letters have to be subscribed by name",
    )
    assign: tuple[MessageQueue, ...] = option(
        "assign", parse_queues, (), about='exactly these queues: `{"T":{"broker-a":[0,1]}}`'
    )
    starting_offsets: Bound | None = option(  # noqa: RUF009 - a field
        "startingOffsets",
        _bound("earliest", "latest", "group"),
        None,
        about="`earliest`, `latest` (streams), `group`, or "
        f"{_BY_QUEUE} with -2 for earliest and -1 for latest (streams); a checkpoint goes first",
        shown="earliest (batch), latest (stream)",
    )
    starting_times: Mapping[MessageQueue, int] | None = option(
        "startingOffsetsByTimestamp",
        parse_times,
        None,
        about=f"the same by queue, {_BY_QUEUE} with times",
    )
    starting_time_strategy: Literal["error", "latest"] = option(
        "startingOffsetsByTimestampStrategy",
        choice("error", "latest"),
        "error",
        about="a queue without a message at or after its time: fail, or begin at its end",
    )
    starting_group: str = option(
        "startingGroup",
        text,
        "",
        about="consumer group whose offsets to begin at with `startingOffsets=group`; queues it "
        "has no offset of begin at the earliest",
    )
    ending_offsets: Bound | None = option(  # noqa: RUF009 - a field
        "endingOffsets",
        _bound("latest"),
        None,
        about=f"`latest`, or {_BY_QUEUE} with -1 for latest; a stream goes no further",
        shown="latest (batch)",
    )
    ending_times: Mapping[MessageQueue, int] | None = option(
        "endingOffsetsByTimestamp",
        parse_times,
        None,
        about=f"the same by queue, {_BY_QUEUE} with times",
    )
    group: str = option(
        "group",
        text,
        "TOOLS_CONSUMER",
        about="consumer group in whose name messages are pulled; it commits nothing",
    )
    fetch_batch_size: int = option(
        "fetch.batchSize",
        whole(1, 1_024),
        1_024,
        about="messages one pull asks for; brokers give fewer, 32 by default "
        "(`maxTransferCountOnMessageInMemory`)",
    )
    fetch_max_bytes: int = option(
        "fetch.maxBytes",
        size_bytes(1 << 10, 8 * _MIB),
        960 << 10,
        about="bytes one pull asks for; a broker makes responses below 1 MiB in less time",
        shown="960k",
    )
    fetch_prefetch: int = option(
        "fetch.prefetch", whole(1, 256), 4, about="pulls of a task that are on their way together"
    )
    fetch_timeout_ms: int = option(
        "fetch.timeoutMs",
        whole(1),
        120_000,
        about="how long a task goes on trying to read on, whatever brokers do, before it fails",
    )
    offset_retries: int = option(
        "fetchOffset.numRetries",
        whole(0, 1_000),
        3,
        about="tries beyond the first one to ask for routes and offsets",
    )
    offset_retry_pause_ms: int = option(
        "fetchOffset.retryIntervalMs",
        whole(0, 600_000),
        10,
        about="pause between them",
    )

    def __post_init__(self) -> None:
        """Check what belongs together.

        Raises:
            ConfigError: options that exclude each other, or of which one needs another.
        """
        super().__post_init__()
        chosen = _given(
            subscribe=self.subscribe, subscribePattern=self.subscribe_pattern, assign=self.assign
        )
        if not chosen:
            raise ConfigError("or subscribePattern or assign is required", key="subscribe")
        _given(
            startingOffsets=self.starting_offsets,
            startingTimestamp=self.starting_timestamp,
            startingOffsetsByTimestamp=self.starting_times,
        )
        _given(
            endingOffsets=self.ending_offsets,
            endingTimestamp=self.ending_timestamp,
            endingOffsetsByTimestamp=self.ending_times,
        )
        if (self.starting_offsets == "group") != bool(self.starting_group):
            reason = "goes with startingOffsets=group, and that with a group"
            raise ConfigError(reason, key="startingGroup")
        if isinstance(self.ending_offsets, Mapping) and EARLIEST in self.ending_offsets.values():
            raise ConfigError("cannot be the earliest (-2)", key="endingOffsets")
        self.check_choice()

    @property
    def is_filtered(self) -> bool:
        """Whether the broker leaves messages out."""
        subscription = build_subscription("", self.sub_expression, self.expression_type)
        return not subscription.takes_all


@dataclass(frozen=True, kw_only=True)
class PushdownOptions:
    """Batches of topics and of stores have it."""

    pushdown: bool = option(
        "pushdown",
        boolean,
        default=False,
        about="let conditions on `topic`, `brokerName`, `queueId`, `queueOffset` and "
        "`storeTimestamp` (of stores `tags`, too) choose what is read; needs "
        "`spark.sql.python.filterPushdown.enabled=true`",
    )


@dataclass(frozen=True, kw_only=True)
class BatchOptions(PushdownOptions, ReadOptions):
    """`spark.read.format("rocketmq")`."""

    def __post_init__(self) -> None:
        """Check what belongs together.

        Raises:
            ConfigError: a batch that begins at the latest.
        """
        super().__post_init__()
        start = self.starting_offsets
        if start == "latest" or (isinstance(start, Mapping) and LATEST in start.values()):
            raise ConfigError("a batch cannot begin at the latest", key="startingOffsets")


@dataclass(frozen=True, kw_only=True)
class StreamOptions(ReadOptions):
    """`spark.readStream.format("rocketmq")`."""

    max_offsets: int | None = option(
        "maxOffsetsPerTrigger",
        whole(1),
        None,
        about="most messages of a trigger, shared among queues by what they have waiting; "
        "under about 200000 the start of each trigger is what costs",
    )
    max_bytes: int | None = option(
        "maxBytesPerTrigger",
        size_bytes(1, 1 << 50),
        None,
        about="most bytes of a trigger, as stored; at least one message is read",
    )
    min_offsets: int | None = option(
        "minOffsetsPerTrigger",
        whole(1),
        None,
        about="wait until so many messages are there, but not longer than `maxTriggerDelay`",
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay", duration_ms, 15 * 60_000, about="see there", shown="15m"
    )
    progress_group: str = option(
        "progressGroup",
        text,
        "",
        about="consumer group that the stream's progress is stored for, so that lag tools show it; "
        "nobody else may consume in it",
    )

    def __post_init__(self) -> None:
        """Check what belongs together.

        Raises:
            ConfigError: a minimum above a maximum.
        """
        super().__post_init__()
        if self.min_offsets and self.max_offsets and self.min_offsets > self.max_offsets:
            reason = f"is more than maxOffsetsPerTrigger ({self.max_offsets})"
            raise ConfigError(reason, key="minOffsetsPerTrigger")


def _given(**values: object) -> list[str]:
    """Return the options that are given; raises ConfigError when that is more than one."""
    given = [name for name, value in values.items() if value is not None and value not in ("", ())]
    if len(given) > 1:
        raise ConfigError(f"excludes {given[0]}; give one of them", key=given[1])
    return given
