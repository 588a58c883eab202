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

`rocketpy.sync` has the same names without `await`. Each name is imported at its first use, so that
servers and the command line do not load the client. The types of the names are in `__init__.pyi`,
which `make stubs` writes.
"""

from importlib import import_module
from typing import Any, Final

from rocketpy import installation

__version__ = "0.9.0"
_DISTRIBUTION = "rocketpy-mq"
"""Marks this package; `rocketpy` on package indexes is another one (see `installation`)."""

_MODULES: Final = {
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
"""Module of each public name, below this package."""

__all__ = ["__version__", "errors", *_MODULES]  # noqa: F822, PLE0604 - imported when used


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """Import a public name at its first use."""
    if name == "errors":
        return import_module(f"{__name__}.errors")
    module = _MODULES.get(name)
    if module is None:
        # `from rocketpy import Flight` hides an AttributeError, so this one is an ImportError.
        if not name.startswith("_") and (found := installation.conflict(name)):
            raise ImportError(found)
        place = ""
        if name.endswith("Error") and hasattr(import_module(f"{__name__}.errors"), name):
            place = f"; errors are in {__name__}.errors, this one as {__name__}.errors.{name}"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{place}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
