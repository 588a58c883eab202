"""AsyncAPI document of an app: topics, handlers, publishers, and the schemas of bodies.

Source: AsyncAPI Specification 3.0.0. Details of RocketMQ are in the extension `x-rocketmq`, because
there is no binding for it.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

from rocketpy.app.binding import parameters_of, result_of
from rocketpy.client.config import ConsumerConfig
from rocketpy.client.messages.json_schemas import Mode, json_schemas
from rocketpy.client.messages.message import Message
from rocketpy.client.messages.serializers import (
    PLAIN,
    JsonOrTextSerializer,
    JsonSerializer,
    MsgpackSerializer,
    Serializer,
    TextSerializer,
)
from rocketpy.client.messages.typed_serializer import ConvertingSerializer, TypedSerializer

_SCHEMAS: Final = "#/components/schemas/"
_UNKNOWN: Final = (None, NoneType, Any, object, inspect.Parameter.empty)
_KEY: Final = re.compile(r"[^A-Za-z0-9._-]")


class Receiving(NamedTuple):
    """Operation of a handler.

    Attributes:
        handler: the user's function.
        config: settings of its consumer.
        group: its group.
        reply: serializer of its answers, None unless it is a responder.
    """

    handler: Callable[..., Any]
    config: ConsumerConfig
    group: str
    reply: Serializer | None


class Sending(NamedTuple):
    """Operation of a publisher.

    Attributes:
        handler: the user's function, whose result is sent.
        topic: destination.
        serializer: encodes the result.
    """

    handler: Callable[..., Any]
    topic: str
    serializer: Serializer


@dataclass
class _Payload:
    """Message of a channel whose payload has no schema yet."""

    message: dict[str, Any]
    kind: Any
    mode: Mode


class DocumentBuilder:
    """Builder of one document.

    Args:
        title: name of the application.
        version: version of the application's interface.
        servers: addresses of name servers.
    """

    def __init__(self, title: str, version: str, servers: Iterable[str]) -> None:
        self._payloads: list[_Payload] = []
        self._channels: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}  # of channels, by topic
        self._operations: dict[str, dict[str, Any]] = {}
        self._document: dict[str, Any] = {
            "asyncapi": "3.0.0",
            "info": {"title": title, "version": version},
        }
        hosts = {
            f"name-server-{number}": {"host": host, "protocol": "rocketmq"}
            for number, host in enumerate(servers, 1)
        }
        if hosts:
            self._document["servers"] = hosts

    def receive(self, operation: Receiving) -> None:
        """Add the operations of a handler, one for each of its topics."""
        config, handler = operation.config, operation.handler
        parameters = parameters_of(handler, is_list=config.batch > 1)
        details = {"group": operation.group}
        if config.sql or config.filter != "*":
            details |= {"sql": config.sql} if config.sql else {"filter": config.filter}
        topics = [config.topic] if isinstance(config.topic, str) else list(config.topic)
        for topic in topics:
            channel = self._channel(topic)
            kind = parameters.body
            if isinstance(config.serializer, TypedSerializer):
                kind = config.serializer.kind
            message = self._message(channel, kind, config.serializer, "validation")
            name = self._add("receive", _name_of(handler), handler, channel, message)
            self._operations[name]["x-rocketmq"] = details
            if operation.reply is not None:
                back = _unique(f"{name}_reply", self._channels)
                self._channels[back] = {"address": None, "messages": {}}
                kind = result_of(handler)
                answer = self._message(back, kind, operation.reply, "serialization")
                self._operations[name]["reply"] = {
                    "channel": {"$ref": f"#/channels/{back}"},
                    "messages": [{"$ref": answer}],
                }

    def send(self, operation: Sending) -> None:
        """Add the operation of a publisher."""
        handler = operation.handler
        channel = self._channel(operation.topic)
        kind = result_of(handler)
        message = self._message(channel, kind, operation.serializer, "serialization")
        self._add("send", f"{_name_of(handler)}_publish", handler, channel, message)

    def document(self) -> dict[str, Any]:
        """Return the document, for JSON or YAML."""
        wanted = [(each.kind, each.mode) for each in self._payloads]
        schemas, components = json_schemas(wanted, _SCHEMAS)
        for each, schema in zip(self._payloads, schemas, strict=True):
            each.message["payload"] = schema
        parts = {"channels": self._channels, "operations": self._operations}
        found = {**self._document, **parts}
        if components:
            found["components"] = {"schemas": components}
        return found

    def _channel(self, topic: str) -> str:
        """Return the key of the channel of a topic."""
        if topic not in self._keys:
            key = _unique(_KEY.sub("_", topic), self._channels)
            self._keys[topic] = key
            self._channels[key] = {"address": topic, "messages": {}}
        return self._keys[topic]

    def _message(self, channel: str, kind: Any, serializer: Serializer, mode: Mode) -> str:  # noqa: ANN401
        """Add a message to a channel, and return the reference to it."""
        kind = _without_none(kind)
        is_known = kind not in _UNKNOWN and not _is_message(kind)
        messages = self._channels[channel]["messages"]
        name = _KEY.sub("_", getattr(kind, "__name__", str(kind))) if is_known else "message"
        name = _unique(name, messages)
        message = messages[name] = {"name": name, "payload": {}}
        if content_type := _content_type(serializer, kind if is_known else None):
            message["contentType"] = content_type
        if content_type == "application/octet-stream":
            message["payload"] = {"type": "string", "format": "binary"}
        elif content_type == "text/plain":
            message["payload"] = {"type": "string"}
        elif is_known:
            self._payloads.append(_Payload(message, kind, mode))
        return f"#/channels/{channel}/messages/{name}"

    def _add(
        self, action: str, name: str, handler: Callable[..., Any], channel: str, message: str
    ) -> str:
        key = _unique(name, self._operations)
        operation: dict[str, Any] = {
            "action": action,
            "channel": {"$ref": f"#/channels/{channel}"},
            "messages": [{"$ref": message}],
        }
        if text := inspect.getdoc(handler) if inspect.isroutine(handler) else None:
            summary, _, description = text.partition("\n\n")
            operation["summary"] = " ".join(summary.split())
            if description:
                operation["description"] = description
        self._operations[key] = operation
        return key


def _name_of(handler: Callable[..., Any]) -> str:
    return _KEY.sub("_", getattr(handler, "__name__", type(handler).__name__))


def _unique(name: str, taken: Iterable[str]) -> str:
    """Return an unused name; a number is appended to a used one."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def _without_none(kind: Any) -> Any:  # noqa: ANN401 - an annotation
    """Return the members of a union beside None, which is not sent."""
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    members = tuple(each for each in get_args(kind) if each is not NoneType)
    return Union[members] if members else None  # noqa: UP007 - of a tuple


def _is_message(kind: Any) -> bool:  # noqa: ANN401 - an annotation
    members = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    return any(isinstance(each, type) and issubclass(each, Message) for each in members)


def _content_type(serializer: Serializer, kind: Any) -> str:  # noqa: ANN401 - an annotation
    """Return the media type of bodies; empty if it is not known."""
    if isinstance(serializer, ConvertingSerializer):
        serializer = serializer.serializer
    is_mixed = isinstance(serializer, JsonOrTextSerializer)
    if serializer is PLAIN or (is_mixed and kind is bytes):
        return "application/octet-stream"
    if isinstance(serializer, TextSerializer) or (is_mixed and kind is str):
        return "text/plain"
    if is_mixed and kind is None:
        return ""
    if isinstance(serializer, JsonSerializer | TypedSerializer):
        return "application/json"
    return "application/msgpack" if isinstance(serializer, MsgpackSerializer) else ""
