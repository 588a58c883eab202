"""Refusing requests that have waited too long on their own connection.

Where requests run inline there is no pool and no queue before it; what waits is suspended: until
others had their turn, until less is in hand or less memory is held. That is the queue which fast
failure looks at there, with the same limits a kind of request.

Source: BrokerFastFailure (5.4.0).
"""

from rocketpy.proto.command import RemotingCommand
from rocketpy.remoting.dispatch import ProcessorTable, Responses, waited_too_long
from rocketpy.remoting.in_hand import InHand

LOOK_INTERVAL_MS = 50
"""How often a connection with suspended requests looks at them."""


def refuse_late(in_hand: InHand, table: ProcessorTable, now_ms: int, responses: Responses) -> None:
    """Answer suspended requests with flow control whose kind may not wait for so long.

    Args:
        in_hand: has the suspended requests; forgets those that are refused.
        table: knows how long each kind may wait.
        now_ms: monotonic time.
        responses: gets the answers.
    """

    def limit_ms(command: RemotingCommand) -> int:
        if command.flag & 1:  # a response
            return 0
        return (table.routes.get(command.code) or table.default).queue_wait_ms

    late = in_hand.take_late(now_ms, limit_ms)
    for command, waited_ms in late:
        responses.refuse((command,), waited_too_long(waited_ms, in_hand.suspended_count))
