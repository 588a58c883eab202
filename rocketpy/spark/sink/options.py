"""Options of `df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`."""

from dataclasses import dataclass
from typing import Final, Literal

from rocketpy.client.options.validation import checked_group
from rocketpy.client.sending.outgoing_message import check_send_topic
from rocketpy.errors import ConfigError, IllegalMessageError
from rocketpy.proto.topic_names import DLQ_PREFIX
from rocketpy.spark.options import choice, duration_ms, option, size_bytes, text, whole
from rocketpy.spark.read_options import ConnectionOptions
from rocketpy.spark.sink.rate_limit import rates

_MIB: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SinkOptions(ConnectionOptions):
    """Options of writes."""

    topic: str = option(
        "topic", text, "", about="topic of all rows; default: the column `topic` of each row"
    )
    group: str = option("producerGroup", text, "spark_sink", about="producer group")
    send_mode: Literal["sync", "oneway"] = option(
        "sendMode",
        choice("sync", "oneway"),
        "sync",
        about="`sync`: a task ends when brokers have acknowledged every row; `oneway`: no "
        "acknowledgements, rows may be lost",
    )
    batch_bytes: int = option(
        "batch.maxBytes",
        size_bytes(0, 4 * _MIB),
        _MIB // 4,
        about="approximate size of a request with several rows, as stored; 0: one row per request, "
        "which is also used for delayed rows",
        shown="256k",
    )
    inflight: int = option(
        "inflight", whole(1, 65_536), 256, about="most unacknowledged requests of a task"
    )
    inflight_bytes: int = option(
        "inflight.maxBytes",
        size_bytes(1 << 10, 48 * _MIB),
        32 * _MIB,
        about="their most bytes; one request may exceed it",
        shown="32m",
    )
    rates: tuple[float, ...] = option(
        "rowsPerSecond",
        rates,
        (),
        about="most rows per second of each task, sent evenly (for a limit of all together: "
        "`coalesce(1)`); or a comma-separated list with the rate of each task",
    )
    retries: int = option("retries", whole(0, 1_000), 2, about="retries of a request")
    send_timeout_ms: int = option(
        "sendTimeoutMs",
        duration_ms,
        30_000,
        about="time limit of a request with its retries, as `30s`",
        shown="30s",
    )
    on_error: Literal["fail", "dlq"] = option(
        "onError",
        choice("fail", "dlq"),
        "fail",
        about="rows that are not valid messages (no body, too large, ...): fail, or send them to "
        "`dlqTopic` with the reason",
    )
    dlq_topic: str = option(
        "dlqTopic",
        text,
        "",
        about="topic of such rows",
        shown="`%DLQ%` and the group",
    )
    message_id: Literal["auto", "column"] = option(
        "messageId",
        choice("auto", "column"),
        "auto",
        about="message ids: new ones, or those of the column `msgId`",
    )
    max_message_bytes: int = option(
        "maxMessageSize",
        size_bytes(1, 64 * _MIB),
        4 * _MIB,
        about="largest body; must not exceed the brokers' setting of this name",
        shown="4m",
    )

    def __post_init__(self) -> None:
        """Check names, and options against each other.

        Raises:
            ConfigError: an invalid topic or group, or `dlqTopic` without `onError=dlq`.
        """
        super().__post_init__()
        checked_group(self.group)
        for key, topic in (("topic", self.topic), ("dlqTopic", self.dlq_topic)):
            if topic:
                _check_topic(key, topic)
        if self.dlq_topic and self.on_error != "dlq":
            raise ConfigError("needs onError=dlq", key="dlqTopic")
        if self.send_timeout_ms < 1:
            raise ConfigError("is less than 1 ms", key="sendTimeoutMs")

    @property
    def dead_topic(self) -> str:
        """Topic for rows that are not valid messages; empty when they are an error."""
        if self.on_error == "fail":
            return ""
        return self.dlq_topic or DLQ_PREFIX + self.group


def _check_topic(key: str, topic: str) -> None:
    try:
        check_send_topic(topic)
    except IllegalMessageError as error:
        raise ConfigError(f"{topic!r}: {error}", key=key) from None
