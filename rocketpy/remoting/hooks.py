"""Hooks around every request a client sends: ACL signing, tracing, zone tags.

Source: org.apache.rocketmq.remoting.RPCHook (5.4.0).
"""

from typing import Protocol

from rocketpy.proto.command import RemotingCommand


class RpcHook(Protocol):
    """Sees each request before it is encoded and each response before its caller."""

    def before_request(self, address: str, command: RemotingCommand) -> None:
        """Look at or change a request; what this raises, the caller gets.

        Args:
            address: where the request goes, `host:port`.
            command: the request; its ext fields are complete, so it may be signed here.
        """
        ...

    def after_response(
        self, address: str, command: RemotingCommand, response: RemotingCommand
    ) -> None:
        """Look at a response; what this raises is logged and does not reach the caller."""
        ...
