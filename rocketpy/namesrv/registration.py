"""Body of REGISTER_BROKER (103): two forms, plain or compressed, checked before use.

Brokers since 3.0.11 send a RegisterBrokerBody, older ones the topic table alone. The first byte
shows whether the body is compressed, because the header's flag of 5.x brokers is wrong.

Input is bounded: names and addresses have a maximum length, invalid topics are dropped and
counted, and inflated bodies have a limit.

Source: DefaultRequestProcessor.registerBroker, RegisterBrokerBody (5.4.0)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketpy.namesrv.names import is_address, is_name, is_topic
from rocketpy.proto.bodies.register import STEP_TOPICS, RegisterBrokerBody
from rocketpy.proto.bodies.topic import DataVersion, TopicConfig
from rocketpy.proto.record.record import body_crc
from rocketpy.runtime.service import Steps

V3_0_11: Final = 37
"""First version with a RegisterBrokerBody."""

_ZLIB: Final = b"\x78"
"""First byte of a compressed body; a plain body begins with a brace."""

_MAX_FILTER_SERVERS: Final = 16
_MAX_QUEUES: Final = 65_536
_MAX_MAPPED_QUEUES: Final = 256
_MAPPING_KEYS: Final = ("topic", "bname", "totalQueues", "epoch", "dirty", "scope")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Registration of a broker with its topics.

    Attributes:
        cluster: cluster name.
        broker_name: shared by a master and its slaves.
        broker_id: 0 is the master.
        address: `host:port` for clients.
        ha_address: `host:port` for its slaves; may be empty.
        zone_name: stored for display only.
        timeout_ms: time without a heartbeat after which it expires.
        enable_acting_master: None from brokers before 5.0.
        data_version: version of its topic table.
        topics: its topics; all, or one after a change.
        filter_servers: addresses, of old brokers.
        mappings: static topics with their mapping, as received.
        refused: names of some topics that were rejected.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone_name: str | None = None
    timeout_ms: int = 120_000
    enable_acting_master: bool | None = None
    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    filter_servers: Sequence[str] = ()
    mappings: Mapping[str, object] = field(default_factory=dict)
    refused: Sequence[str] = ()

    def problem(self) -> str | None:
        """Return the defect of the broker's names, or None."""
        if not is_name(self.cluster):
            return "cluster name is empty, too long, or has blanks or unprintable characters"
        if not is_name(self.broker_name):
            return "broker name is empty, too long, or has blanks or unprintable characters"
        if self.broker_id < 0:
            return "broker id is negative"
        if not is_address(self.address):
            return "broker address is not host:port"
        if self.ha_address and not is_address(self.ha_address):
            return "HA address is not host:port"
        return None


@dataclass(frozen=True, slots=True)
class RegisteredTopics:
    """Contents of a registration's body."""

    data_version: DataVersion
    topics: dict[str, TopicConfig]
    filter_servers: tuple[str, ...]
    mappings: dict[str, object]
    refused: tuple[str, ...]


def body_matches(body: bytes, body_crc32: int) -> bool:
    """Compare a body with the header's `bodyCrc32`; 0 means no checksum."""
    return body_crc32 in {0, body_crc(body)}


def is_compressed(body: bytes) -> bool:
    """Return whether a body is compressed."""
    return body.startswith(_ZLIB)


def read_topics(body: bytes, version: int) -> Steps[RegisteredTopics]:
    """Read a registration's body of either form, as a generator with pauses.

    A hundred thousand topics take a second to read; the caller serves other requests at the pauses.

    Args:
        body: as received; may be empty.
        version: of the request; decides the form.

    Returns:
        The contents, when the generator ends.

    Raises:
        BadBodyError: it cannot be decoded, or inflates beyond the limit.
    """
    if not body:
        return RegisteredTopics(DataVersion(), {}, (), {}, ())
    if is_compressed(body):
        whole = yield from RegisterBrokerBody.read_compressed(body, version)
    else:
        whole = yield from RegisterBrokerBody.read_plain(body, is_bare=version < V3_0_11)
    return (yield from _checked(whole))


def _checked(whole: RegisterBrokerBody) -> Steps[RegisteredTopics]:
    """Drop invalid topics."""
    wrapper = whole.topic_config_serialize_wrapper
    topics: dict[str, TopicConfig] = {}
    refused: list[str] = []
    for count, (name, topic) in enumerate(wrapper.topic_config_table.items(), 1):
        if _is_fine(name, topic):
            topics[name] = topic
        elif len(refused) < 10:
            refused.append(name[:64])
        if count % STEP_TOPICS == 0:
            yield
    servers = [each for each in whole.filter_server_list if is_address(each)]
    mappings: dict[str, object] = {
        name: _mapping(mapping)
        for name, mapping in (wrapper.topic_queue_mapping_info_map or {}).items()
        if name in topics and isinstance(mapping, dict)
    }
    return RegisteredTopics(
        wrapper.data_version, topics, tuple(servers[:_MAX_FILTER_SERVERS]), mappings, tuple(refused)
    )


def _mapping(raw: dict[str, object]) -> dict[str, object]:
    """Reduce a static topic's mapping to the fields of Apache's TopicQueueMappingInfo."""
    kept = {
        key: raw[key]
        for key in _MAPPING_KEYS
        if isinstance(raw.get(key), bool | int) or is_name(str(raw.get(key, "")))
    }
    current = raw.get("currIdMap")
    if isinstance(current, dict):
        pairs = [(k, v) for k, v in current.items() if str(k).isdecimal() and isinstance(v, int)]
        kept["currIdMap"] = dict(pairs[:_MAX_MAPPED_QUEUES])
    return kept


def _is_fine(name: str, topic: TopicConfig) -> bool:
    return (
        is_topic(name)
        and 0 <= topic.read_queue_nums <= _MAX_QUEUES
        and 0 <= topic.write_queue_nums <= _MAX_QUEUES
    )
