"""Apache RocketMQ in Python: name server, broker and client, with its protocol and its files.

Example:
    ::

        import asyncio
        import rocketpy


        async def main() -> None:
            async with rocketpy.connect("127.0.0.1:9876", group="shop") as client:
                await client.producer().send("orders", b"o1", tag="paid")
                async with client.consumer("orders", group="billing") as consumer:
                    async for message in consumer:
                        print(message.body)


        asyncio.run(main())

`rocketpy.sync` has the same names without `await`. A program that imports this package loads the
client at once, not later inside a running event loop; servers and the command line, which import
single modules, do not load it.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rocketpy import installation

if TYPE_CHECKING:
    from rocketpy import errors as errors
    from rocketpy.app.application import App as App
    from rocketpy.app.binding import Headers as Headers
    from rocketpy.client.callbacks.hooks import SendRetry as SendRetry
    from rocketpy.client.callbacks.middleware import Handle as Handle
    from rocketpy.client.callbacks.middleware import Proceed as Proceed
    from rocketpy.client.callbacks.middleware import Sending as Sending
    from rocketpy.client.client import Client as Client
    from rocketpy.client.client import connect as connect
    from rocketpy.client.consumer.pull_consumer import PullConsumer as PullConsumer
    from rocketpy.client.consumer.push_consumer import Consumer as Consumer
    from rocketpy.client.credentials import Credentials as Credentials
    from rocketpy.client.health import ClientHealth as ClientHealth
    from rocketpy.client.health import ConsumerHealth as ConsumerHealth
    from rocketpy.client.messages.message import Message as Message
    from rocketpy.client.messages.message import ReceivedMessage as ReceivedMessage
    from rocketpy.client.messages.outcomes import Retry as Retry
    from rocketpy.client.messages.outcomes import ToDLQ as ToDLQ
    from rocketpy.client.messages.outcomes import TxState as TxState
    from rocketpy.client.messages.send_options import SendOptions as SendOptions
    from rocketpy.client.messages.serializers import Serializer as Serializer
    from rocketpy.client.messages.serializers import json as json
    from rocketpy.client.messages.serializers import msgpack as msgpack
    from rocketpy.client.messages.serializers import plain as plain
    from rocketpy.client.messages.serializers import text as text
    from rocketpy.client.messages.typed_serializer import TypedSerializer as TypedSerializer
    from rocketpy.client.pop.pop_consumer import PopConsumer as PopConsumer
    from rocketpy.client.pop.popped_message import PoppedMessage as PoppedMessage
    from rocketpy.client.producer.producer import Producer as Producer
    from rocketpy.client.producer.transaction import Transaction as Transaction
    from rocketpy.client.sending.result import SendResult as SendResult
    from rocketpy.client.sending.result import SendStats as SendStats
    from rocketpy.client.sending.result import SendStatus as SendStatus
    from rocketpy.proto.allocation import by_machine_room as by_machine_room
    from rocketpy.proto.allocation import consistent_hash as consistent_hash
    from rocketpy.proto.allocation import fixed_queues as fixed_queues
    from rocketpy.proto.allocation import machine_room_nearby as machine_room_nearby
    from rocketpy.proto.message_queue import MessageQueue as MessageQueue

__version__ = "0.9.0"
_DISTRIBUTION = "rocketpy-mq"
"""Marks this package; `rocketpy` on package indexes is another one (see `installation`)."""

_HOME = {
    "App": "app.application",
    "Client": "client.client",
    "ClientHealth": "client.health",
    "Consumer": "client.consumer.push_consumer",
    "ConsumerHealth": "client.health",
    "Credentials": "client.credentials",
    "Handle": "client.callbacks.middleware",
    "Headers": "app.binding",
    "Message": "client.messages.message",
    "MessageQueue": "proto.message_queue",
    "PopConsumer": "client.pop.pop_consumer",
    "PoppedMessage": "client.pop.popped_message",
    "Proceed": "client.callbacks.middleware",
    "Producer": "client.producer.producer",
    "PullConsumer": "client.consumer.pull_consumer",
    "ReceivedMessage": "client.messages.message",
    "Retry": "client.messages.outcomes",
    "SendOptions": "client.messages.send_options",
    "SendResult": "client.sending.result",
    "SendRetry": "client.callbacks.hooks",
    "SendStats": "client.sending.result",
    "SendStatus": "client.sending.result",
    "Sending": "client.callbacks.middleware",
    "Serializer": "client.messages.serializers",
    "ToDLQ": "client.messages.outcomes",
    "Transaction": "client.producer.transaction",
    "TxState": "client.messages.outcomes",
    "TypedSerializer": "client.messages.typed_serializer",
    "by_machine_room": "proto.allocation",
    "connect": "client.client",
    "consistent_hash": "proto.allocation",
    "fixed_queues": "proto.allocation",
    "json": "client.messages.serializers",
    "machine_room_nearby": "proto.allocation",
    "msgpack": "client.messages.serializers",
    "plain": "client.messages.serializers",
    "text": "client.messages.serializers",
}

__all__ = ["__version__", "errors", *_HOME]  # noqa: PLE0604 - all of them are strings


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """Load a public name when it is first used."""
    if name == "errors":
        return import_module("rocketpy.errors")
    home = _HOME.get(name)
    if home is None:
        # `from rocketpy import Flight` hides an AttributeError, so this one is an ImportError.
        if not name.startswith("_") and (found := installation.conflict(name)):
            raise ImportError(found)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)


_OF_THE_CLIENT = {__name__, f"{__name__}.errors", f"{__name__}.otel", f"{__name__}.sync"}
"""Modules that only programs with a client import; one that comes first loads all of it."""


def _is_asked_for_itself() -> bool:
    """Whether a program imports this package, and not only one of its modules.

    The import of `rocketpy.cli.main` imports this package first; the frames of the import system
    say which name began it. `python -m rocketpy` is the command line.
    """
    begun = __name__
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to look at one's callers
    while frame.f_back is not None:
        frame = frame.f_back
        if not frame.f_code.co_filename.startswith("<frozen importlib"):
            break
        name = frame.f_locals.get("name")
        if isinstance(name, str):
            begun = name
    return begun in _OF_THE_CLIENT and sys.argv[:1] != ["-m"]


if _is_asked_for_itself():
    for _name in _HOME:
        __getattr__(_name)
