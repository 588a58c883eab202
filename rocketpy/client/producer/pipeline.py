"""Entry to a producer for threads other than the one of its event loop."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rocketpy.client.messages.message import Message
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import Outgoing
from rocketpy.client.sending.result import SendResult


class PreparedSend(NamedTuple):
    """A message that is built and within the limits, and its destination."""

    topic: str
    message: Outgoing
    options: SendOptions


class SendPipeline(NamedTuple):
    """Steps of a pipelined send: threads prepare messages, the loop starts them.

    Attributes:
        check_open: raises ClosedError when the client is closed; on any thread.
        next_msg_id: returns a message id; for callers that take turns.
        prepare: checks and builds a message with an id; on any thread.
        start: starts a send; on the loop.
        start_oneway: starts a one-way send; on the loop.
        window: messages and bytes in flight; any thread may read it.
    """

    check_open: Callable[[], None]
    next_msg_id: Callable[[], str]
    prepare: Callable[[str | Message, object, SendOptions, str], PreparedSend]
    start: Callable[[PreparedSend], asyncio.Future[SendResult]]
    start_oneway: Callable[[PreparedSend], None]
    window: InFlightWindow
