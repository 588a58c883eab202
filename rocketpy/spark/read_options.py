"""Options of reads of the format `rocketmq`, and options that all formats share.

Names are those of Spark's Kafka source where it has them. Modules for connections are imported on
use: planners of store directories, which are new processes, start faster without them.
"""

# ruff: noqa: PLC0415 - see above

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import (
    EXPRESSION_SQL92,
    EXPRESSION_TAG,
    SUB_ALL,
    build_subscription,
)
from rocketpy.proto.validators import check_group
from rocketpy.spark.offsets import (
    EARLIEST,
    LATEST,
    parse_offsets,
    parse_queues,
    parse_time,
    parse_times,
)
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
from rocketpy.spark.secret_sources import SecretSource, secret_source
from rocketpy.sql92.condition import compile_condition

if TYPE_CHECKING:
    from rocketpy.client.credentials import Credentials
    from rocketpy.remoting.config import RemotingClientConfig

Bound = str | Mapping[MessageQueue, int]
"""Start or end of a read: `earliest`, `latest`, `group`, or an offset by queue."""

DataLoss = Literal["fail", "skip", "mark"]

_MIB: Final = 1 << 20
_BY_QUEUE: Final = '`{"T":{"broker-a":{"0":23}}}`'


def _servers(value: str) -> tuple[str, ...]:
    from rocketpy.client.cluster.name_servers import parse_addresses

    found = parse_addresses(value)
    if not found:
        raise ValueError("names no address")
    return found


def _group(value: str) -> str:
    """Return the name of a group; it may begin with a namespace."""
    reason = check_group(value)
    if reason is not None:
        raise ValueError(f"is no name of a group: {reason}")
    return value


def _bound(*allowed: str) -> Callable[[str], Bound]:
    """Return a parser of a word or of offsets by queue."""
    word = choice(*allowed)

    def parse(value: str) -> Bound:
        return parse_offsets(value) if value.strip().startswith("{") else word(value)

    return parse


def _secret_from(name: str) -> Any:  # noqa: ANN401 - a field
    option_name = f"{name}.from"
    return option(
        option_name,
        partial(secret_source, option_name),
        None,
        about=f"where `{name}` is, instead of its value: `env:NAME`, `file:PATH`, or "
        "`scope:SCOPE/KEY` (Databricks)",
        is_secret=True,  # the secret itself may be given by mistake
    )


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """Options for the connection to the cluster, for reads and writes."""

    nameservers: tuple[str, ...] = option(
        "nameservers",
        _servers,
        about="addresses of the name servers, `host:port;host:port`",
        aliases=("rocketmq.namesrv.addr",),
    )
    namespace: str = option("namespace", text, "", about="namespace of topics and groups")
    access_key: str = option(
        "accessKey", text, "", about="access key of the account, for clusters with access control"
    )
    secret_key: str = option(
        "secretKey", text, "", about="secret key, which signs requests", is_secret=True
    )
    security_token: str = option(
        "securityToken", text, "", about="token of a temporary account", is_secret=True
    )
    secret_key_from: SecretSource | None = _secret_from("secretKey")  # noqa: RUF009 - a field
    security_token_from: SecretSource | None = _secret_from("securityToken")  # noqa: RUF009 - a field
    tls_enable: bool = option("tls.enable", boolean, default=False, about="use TLS")
    tls_auth_server: bool = option(
        "tls.client.authServer",
        boolean,
        default=False,
        about="verify the certificates of servers",
    )
    tls_trust_cert_path: str = option(
        "tls.client.trustCertPath",
        text,
        "",
        about="PEM file of the trusted certificate authorities",
    )
    tls_cert_path: str = option(
        "tls.client.certPath", text, "", about="PEM file of the client's certificate chain"
    )
    tls_key_path: str = option(
        "tls.client.keyPath", text, "", about="PEM file of the client's private key"
    )
    tls_key_password: str = option(
        "tls.client.keyPassword", text, "", about="password of that key", is_secret=True
    )
    tls_key_password_from: SecretSource | None = _secret_from("tls.client.keyPassword")  # noqa: RUF009 - a field
    timeout_ms: int = option(
        "timeoutMs", whole(1, 600_000), 5_000, about="timeout of a request for routes or offsets"
    )

    def __post_init__(self) -> None:
        """Check options against each other.

        Raises:
            ConfigError: only one of the two keys is given, or a secret twice.
        """
        pairs = {
            "secretKey": (self.secret_key, self.secret_key_from),
            "securityToken": (self.security_token, self.security_token_from),
            "tls.client.keyPassword": (self.tls_key_password, self.tls_key_password_from),
        }
        for name, pair in pairs.items():
            if all(pair):
                raise ConfigError(f"excludes {name}", key=f"{name}.from")
        if bool(self.access_key) != any(pairs["secretKey"]):
            missing = "secretKey" if self.access_key else "accessKey"
            reason = "is missing; the other key is given"
            if self.access_key:
                reason += " (or secretKey.from, which keeps the secret out of the job)"
            raise ConfigError(reason, key=missing)

    @property
    def credentials(self) -> "Credentials | None":
        """The account; None: from the environment of the process.

        Raises:
            ConfigError: a secret is not at its source.
        """
        from rocketpy.client.credentials import Credentials

        if not self.access_key:
            return None
        token = self.security_token
        if self.security_token_from is not None:
            token = self.security_token_from.read()
        return Credentials(self.access_key, self._secret_key, token)

    @property
    def _secret_key(self) -> str:
        return self.secret_key if self.secret_key_from is None else self.secret_key_from.read()

    @property
    def remoting(self) -> "RemotingClientConfig":
        """Settings of connections."""
        from rocketpy.remoting.config import RemotingClientConfig, TlsClientConfig

        password = self.tls_key_password
        if self.tls_key_password_from is not None:
            password = self.tls_key_password_from.read()
        tls = TlsClientConfig(
            enable=self.tls_enable,
            auth_server=self.tls_auth_server,
            key_path=self.tls_key_path,
            key_password=password,
            cert_path=self.tls_cert_path,
            trust_cert_path=self.tls_trust_cert_path,
        )
        return RemotingClientConfig(tls=tls, connect_timeout_millis=min(3_000, self.timeout_ms))


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Options for the columns and the size of batches, for live reads and store reads."""

    include: tuple[str, ...] = option(
        "include",
        words("properties", "hosts", "msgId"),
        ("properties",),
        about="optional columns: `properties`, `hosts`, `msgId`; Spark reads unused columns too, "
        "so fewer are faster",
    )
    columns: tuple[str, ...] | None = option(
        "columns", words(), None, about="exactly these columns, in this order", shown="all"
    )
    value_format: Literal["binary", "string"] = option(
        "valueFormat", choice("binary", "string"), "binary", about="type of the column `body`"
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
        about="damaged records: fail with the offset, or skip the record",
    )
    batch_rows: int = option(
        "arrow.batchRows", whole(1, 1_000_000), 20_000, about="most rows of a record batch"
    )
    batch_bytes: int = option(
        "arrow.batchBytes",
        size_bytes(1 << 10, 1 << 30),
        4 * _MIB,
        about="approximate size of the records of a record batch",
        shown="4m",
    )


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions(RowOptions):
    """Options that select messages and the number of tasks, for live reads and store reads."""

    sub_expression: str = option(
        "subExpression",
        text,
        SUB_ALL,
        about="filter of messages: tags as `a || b`, or SQL92; applied by brokers, or by "
        "reads of stores",
    )
    expression_type: str = option(
        "expressionType",
        choice(EXPRESSION_TAG, EXPRESSION_SQL92),
        EXPRESSION_TAG,
        about="language of `subExpression`: `TAG` or `SQL92`",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        parse_time,
        None,
        about="start at messages stored at or after this time, ms since 1970",
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        parse_time,
        None,
        about="end before messages stored at or after this time, ms since 1970",
    )
    min_partitions: int | None = option(
        "minPartitions",
        whole(1, 100_000),
        None,
        about="split large ranges into about this many partitions; default: one per queue",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", whole(1), None, about="split ranges with more messages"
    )
    fail_on_data_loss: bool | None = option(
        "failOnDataLoss",
        boolean,
        None,
        about="fail when messages of the read are lost; `false` is `onDataLoss=skip`",
        shown="true",
    )
    on_data_loss: DataLoss | None = option(  # noqa: RUF009 - a field
        "onDataLoss",
        choice("fail", "skip", "mark"),
        None,
        about="lost messages: `fail`, `skip`, or `mark` each range by a row with its first offset, "
        "no body, and the property `LOST_UNTIL` with the offset after its last message",
        shown="fail",
    )

    def check_choice(self) -> None:
        """Check options against each other.

        Raises:
            ConfigError: an invalid filter, or options that exclude each other.
        """
        _given(failOnDataLoss=self.fail_on_data_loss, onDataLoss=self.on_data_loss)
        try:
            if self.expression_type == EXPRESSION_SQL92:
                compile_condition(self.sub_expression)
            build_subscription("", self.sub_expression, self.expression_type)
        except ValueError as error:
            raise ConfigError(str(error), key="subExpression") from None

    @property
    def data_loss(self) -> DataLoss:
        """Policy for lost messages."""
        if self.on_data_loss is not None:
            return self.on_data_loss
        return "skip" if self.fail_on_data_loss is False else "fail"


@dataclass(frozen=True, kw_only=True)
class ReadOptions(ConnectionOptions, ChoiceOptions):
    """Options of batch and streaming reads."""

    subscribe: tuple[str, ...] = option("subscribe", words(), (), about="topics, comma-separated")
    subscribe_pattern: str = option(
        "subscribePattern",
        pattern,
        "",
        about="regular expression that matches complete names of topics; system topics, "
        "retry topics and dead letters must be subscribed by name",
    )
    assign: tuple[MessageQueue, ...] = option(
        "assign", parse_queues, (), about='exactly these queues: `{"T":{"broker-a":[0,1]}}`'
    )
    starting_offsets: Bound | None = option(  # noqa: RUF009 - a field
        "startingOffsets",
        _bound("earliest", "latest", "group"),
        None,
        about="`earliest`, `latest` (streams), `group`, or "
        f"{_BY_QUEUE} with -2 for earliest and -1 for latest (streams); a checkpoint "
        "takes precedence",
        shown="earliest (batch), latest (stream)",
    )
    starting_times: Mapping[MessageQueue, int] | None = option(
        "startingOffsetsByTimestamp",
        parse_times,
        None,
        about=f"times by queue, {_BY_QUEUE} with ms since 1970",
    )
    starting_time_strategy: Literal["error", "latest"] = option(
        "startingOffsetsByTimestampStrategy",
        choice("error", "latest"),
        "error",
        about="queue without a message at or after its time: fail, or start at its end",
    )
    starting_group: str = option(
        "startingGroup",
        _group,
        "",
        about="consumer group with the start offsets, for `startingOffsets=group`; queues without "
        "an offset start at the earliest",
    )
    ending_offsets: Bound | None = option(  # noqa: RUF009 - a field
        "endingOffsets",
        _bound("latest"),
        None,
        about=f"`latest`, or {_BY_QUEUE} with -1 for latest; a stream ends there",
        shown="latest (batch)",
    )
    ending_times: Mapping[MessageQueue, int] | None = option(
        "endingOffsetsByTimestamp",
        parse_times,
        None,
        about=f"times by queue, {_BY_QUEUE} with ms since 1970",
    )
    group: str = option(
        "group",
        text,
        "TOOLS_CONSUMER",
        about="consumer group of pull requests; no offset is committed",
    )
    fetch_batch_size: int = option(
        "fetch.batchSize",
        whole(1, 1_024),
        1_024,
        about="most messages of a pull; brokers limit it too, to 32 by default "
        "(`maxTransferCountOnMessageInMemory`)",
    )
    fetch_max_bytes: int = option(
        "fetch.maxBytes",
        size_bytes(1 << 10, 8 * _MIB),
        960 << 10,
        about="most bytes of a pull; brokers are faster with responses below 1 MiB",
        shown="960k",
    )
    fetch_prefetch: int = option(
        "fetch.prefetch", whole(1, 256), 4, about="pulls of a task in flight"
    )
    fetch_timeout_ms: int = option(
        "fetch.timeoutMs",
        whole(1),
        120_000,
        about="time limit of a pull with its retries",
    )
    offset_retries: int = option(
        "fetchOffset.numRetries",
        whole(0, 1_000),
        3,
        about="retries of requests for routes and offsets",
    )
    offset_retry_pause_ms: int = option(
        "fetchOffset.retryIntervalMs",
        whole(0, 600_000),
        10,
        about="pause between these retries, ms",
    )

    def __post_init__(self) -> None:
        """Check options against each other.

        Raises:
            ConfigError: options that exclude each other, or one that needs another.
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
            reason = "needs startingOffsets=group, which needs a group"
            raise ConfigError(reason, key="startingGroup")
        if isinstance(self.ending_offsets, Mapping) and EARLIEST in self.ending_offsets.values():
            raise ConfigError("cannot be the earliest (-2)", key="endingOffsets")
        self.check_choice()

    @property
    def is_filtered(self) -> bool:
        """Whether the broker filters messages."""
        subscription = build_subscription("", self.sub_expression, self.expression_type)
        return not subscription.takes_all


@dataclass(frozen=True, kw_only=True)
class PushdownOptions:
    """Options of batch reads of topics and stores."""

    pushdown: bool = option(
        "pushdown",
        boolean,
        default=False,
        about="narrow the read by conditions on `topic`, `brokerName`, `queueId`, `queueOffset` "
        "and `storeTimestamp` (for stores also `tags`); needs "
        "`spark.sql.python.filterPushdown.enabled=true`",
    )


@dataclass(frozen=True, kw_only=True)
class BatchOptions(PushdownOptions, ReadOptions):
    """`spark.read.format("rocketmq")`."""

    def __post_init__(self) -> None:
        """Check options against each other.

        Raises:
            ConfigError: the batch begins at the latest offset.
        """
        super().__post_init__()
        start = self.starting_offsets
        if start == "latest" or (isinstance(start, Mapping) and LATEST in start.values()):
            raise ConfigError("a batch cannot start at the latest offset", key="startingOffsets")


@dataclass(frozen=True, kw_only=True)
class StreamOptions(ReadOptions):
    """`spark.readStream.format("rocketmq")`."""

    max_offsets: int | None = option(
        "maxOffsetsPerTrigger",
        whole(1),
        None,
        about="most messages of a trigger, divided among queues in proportion to their backlog; "
        "below about 200000 the start of triggers dominates the cost",
    )
    max_bytes: int | None = option(
        "maxBytesPerTrigger",
        size_bytes(1, 1 << 50),
        None,
        about="most bytes of a trigger, as stored; a trigger reads at least one message",
    )
    min_offsets: int | None = option(
        "minOffsetsPerTrigger",
        whole(1),
        None,
        about="wait for this many messages, but not longer than `maxTriggerDelay`",
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay", duration_ms, 15 * 60_000, about="see `minOffsetsPerTrigger`", shown="15m"
    )
    progress_group: str = option(
        "progressGroup",
        _group,
        "",
        about="consumer group for which the stream's progress is stored, for lag tools; no "
        "consumer may use it",
    )

    def __post_init__(self) -> None:
        """Check options against each other.

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
