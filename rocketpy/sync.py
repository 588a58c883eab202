"""The client without `await`: the same names, run by an event loop on another thread.

For scripts, Django, Flask, Celery. Objects are safe to use from several threads. A process that
forks must connect again in the child. Handlers are plain functions, run on threads; an `async def`
handler runs on the client's thread, where a blocking call is an error.

Methods take and return the same as those of `rocketpy`, and block meanwhile.

Example:
    ::

        from rocketpy.sync import connect

        with connect("127.0.0.1:9876", group="script") as client:
            client.producer().send("orders", b"o1")
            with client.consumer("orders", group="script", start="earliest") as consumer:
                for message in consumer:
                    print(message.body)
                    break
"""

from rocketpy.client.blocking.client import Client, Consumer, PopConsumer, PullConsumer, connect
from rocketpy.client.blocking.message import PoppedMessage, ReceivedMessage
from rocketpy.client.blocking.producer import Producer, Transaction

__all__ = [
    "Client",
    "Consumer",
    "PopConsumer",
    "PoppedMessage",
    "Producer",
    "PullConsumer",
    "ReceivedMessage",
    "Transaction",
    "connect",
]
