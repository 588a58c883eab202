"""Settings of a responder: those of a consumer, and what its answers go through."""

from collections.abc import Sequence
from dataclasses import dataclass

from rocketpy.client.config import ConsumerConfig
from rocketpy.client.middleware import SendMiddleware
from rocketpy.client.option_types import takes
from rocketpy.client.serializers import Serializer
from rocketpy.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderConfig(ConsumerConfig):
    """Settings of a responder.

    Attributes:
        reply_middlewares: coroutine functions around each answer that is sent, the outermost first;
            see `rocketpy.client.middleware`.
        reply_serializer: turns answers into bytes; None for `serializer`, which reads requests.
    """

    reply_middlewares: Sequence[SendMiddleware] = ()
    reply_serializer: Serializer | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: one cannot be used; names the option.
        """
        ConsumerConfig.__post_init__(self)
        if not all(takes(each, 2) for each in self.reply_middlewares):
            reason = "a middleware takes what is sent, and what to call with it"
            raise ConfigError(reason, key="reply_middlewares")
        if self.batch != 1:
            raise ConfigError("a responder answers one message after the other", key="batch")
