"""Every exception RocketPy raises on purpose, in one tree.

- RocketPyError
    - ProtocolError                 the peer sent bytes no correct peer sends; the connection closes
        - FrameTooLongError
        - BadFrameError
        - BadHeaderError            the header of a complete frame cannot be read
    - HeaderFieldError              a request lacks a field, or a field has a wrong value
    - BadBodyError                  a body that cannot be decoded
    - ExpressionError               an unusable filter expression; says where
    - BrokerError                   the peer answered with a failure code
        - FlowControlError          2, 215, 530, 42900    retriable, after `retry_after` seconds
        - ...                       one class per code, see below
    - ClientError                   the client side could not do it
        - IllegalMessageError       the message breaks a limit; never retried
            - MessageIllegalError   the broker says so; also a BrokerError
        - NotSentError              surely nothing was sent; retriable
            - NoNameServerError
                - NameServerAddressError
            - NoRouteError
                - TopicNotWritableError
            - ConnectError
            - TooManyInFlightError
        - ConnectionLostError       it may have been executed; retriable
        - RequestTimeoutError       the same, also a TimeoutError
        - RemoteError               the responder of a request failed
        - UnreadableBodyError       the consumer's serializer cannot read a received body
        - HalfNotStoredError        a transaction did not begin
        - PartlySentError           a batch failed half way; says the outcome of each message
        - ServersFailedError        several servers were asked and some failed; says which
        - DataLossError             messages that were to be read are gone; says which
        - OffsetFileError           the file with a broadcasting group's offsets; retriable
        - ClosedError
    - StoreError                    the files on disk cannot be trusted or written
        - StoreLockedError          another process has the directory
        - StoreFormatError          a directory or file in an unexpected format
        - StoreReadOnlyError        a flush failed earlier; restart to recover
        - ResourceShortError        retriable
            - DiskFullError         retriable
        - CorruptRecordError
        - LogGapError
        - QueueGapError
    - ConfigError                   a wrong value of an option or a configuration key; says which
    - StartError                    a server cannot start (port taken, ...)
    - JobError                      a job of the data pipeline cannot continue

An error answers three questions: the class says *whose fault* it is, `retriable` says *whether
to retry*, `code` and `remark` say *what the peer answered*. A call with a wrong argument raises
`IllegalMessageError`, `ConfigError`, or Python's `TypeError` or `ValueError`. A broken invariant of
RocketPy itself is an `AssertionError`.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from rocketpy.installation import require_own_package

__all__ = [
    "BadBodyError",
    "BadFrameError",
    "BadHeaderError",
    "BrokerError",
    "ClientError",
    "ClosedError",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "ConsumerNotOnlineError",
    "CorruptRecordError",
    "DataLossError",
    "DiskFullError",
    "ExpressionError",
    "FlowControlError",
    "FrameTooLongError",
    "HalfNotStoredError",
    "HeaderFieldError",
    "IllegalMessageError",
    "InvalidParameterError",
    "JobError",
    "LogGapError",
    "MessageIllegalError",
    "NameServerAddressError",
    "NoNameServerError",
    "NoPermissionError",
    "NoRouteError",
    "NotSentError",
    "OffsetFileError",
    "PartlySentError",
    "ProtocolError",
    "QueryNotFoundError",
    "QueueGapError",
    "RemoteError",
    "RequestCodeNotSupportedError",
    "RequestTimeoutError",
    "ResourceShortError",
    "RocketPyError",
    "ServersFailedError",
    "ServiceNotAvailableError",
    "StartError",
    "StoreError",
    "StoreFormatError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "SubscriptionGroupNotExistError",
    "SubscriptionParseError",
    "SystemFaultError",
    "TooManyInFlightError",
    "TopicNotExistError",
    "TopicNotWritableError",
    "UnreadableBodyError",
]

# Almost every module of the package imports this one.
require_own_package()


ErrorT = TypeVar("ErrorT", bound=BaseException)


class RocketPyError(Exception):
    """Root of the tree; catch it to catch everything RocketPy raises on purpose.

    Errors can be pickled with their notes, to travel between processes.

    Attributes:
        retriable: the same call may succeed later, unchanged. A send that is repeated may be
            stored twice (`message.id` stays the same).
    """

    retriable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how `pickle` makes the error again without the arguments of its class."""
        return _remake, (type(self), self.args, self.__dict__)


def _remake(
    kind: type[BaseException], args: tuple[object, ...], state: dict[str, object]
) -> BaseException:
    """Restore a pickled exception, notes included."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def own_copy(error: ErrorT) -> ErrorT:
    """Return a copy of an error, for one of several callers with the same failure.

    An error object that all of them raise would collect the tracebacks and notes of all.
    """
    own = copy.copy(error)
    notes = getattr(error, "__notes__", None)
    if notes is not None:
        own.__notes__ = [*notes]
    return own.with_traceback(error.__traceback__)


class ProtocolError(RocketPyError):
    """The peer sent bytes that no correct peer sends; the connection must close."""


class FrameTooLongError(ProtocolError):
    """A length prefix asks for more than the agreed limit.

    Args:
        length_bytes: what it asks for.
        limit_bytes: what is allowed.
        guess: protocol that the bytes look like, for mixed-up ports; may be empty.
    """

    def __init__(self, length_bytes: int, limit_bytes: int, guess: str = "") -> None:
        more = f"; it looks like {guess}" if guess else ""
        limit = f"exceeds the limit of {limit_bytes} bytes"
        super().__init__(f"frame of {length_bytes} bytes {limit}{more}")
        self.length_bytes = length_bytes
        self.limit_bytes = limit_bytes


class BadFrameError(ProtocolError):
    """A frame whose lengths contradict each other."""


class BadHeaderError(ProtocolError):
    """A frame whose header cannot be decoded."""


class HeaderFieldError(RocketPyError):
    """A request lacks a header field, or the field's value does not fit its type.

    Attributes:
        field: the wire name of the field.
        reason: what is wrong, as the rest of a sentence: `is required`.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"header field {field} {reason}")
        self.field = field
        self.reason = reason


class BadBodyError(RocketPyError):
    """A body that cannot be decoded as its request or response code demands."""


class ExpressionError(RocketPyError, ValueError):
    """A filter expression that cannot be used; change the expression.

    Attributes:
        position: index of the first wrong character, from 0.
        reason: what is wrong there.
    """

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"at character {position + 1}: {reason}")
        self.reason = reason
        self.position = position


MOST_REMARK_CHARACTERS: Final = 4_096
"""Limit of a kept remark: a peer may send megabytes, and errors are stored and logged."""


class BrokerError(RocketPyError):
    """A response whose code is not SUCCESS.

    Attributes:
        code: the wire value, kept even without a class for it.
        remark: the peer's text, at most `MOST_REMARK_CHARACTERS` of it.
    """

    _by_code: ClassVar[dict[int, type["BrokerError"]]] = {}

    def __init_subclass__(cls, code: int | tuple[int, ...]) -> None:
        """Register the class under its wire codes; a code may have one class only."""
        super().__init_subclass__()
        for each in (code,) if isinstance(code, int) else code:
            assert each not in cls._by_code, cls
            cls._by_code[each] = cls

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"[{code}] {remark}")
        self.code = code
        self.remark = remark

    @classmethod
    def from_code(cls, code: int, remark: str | None) -> "BrokerError":
        """Return the most precise error for a wire code; unknown codes keep the base class."""
        return cls._by_code.get(code, BrokerError)(code, (remark or "")[:MOST_REMARK_CHARACTERS])


class SystemFaultError(BrokerError, code=1):
    """The server failed internally (SYSTEM_ERROR); another broker may succeed."""

    retriable = True


class RequestCodeNotSupportedError(BrokerError, code=3):
    """The server does not support this request; a newer version may."""


class ServiceNotAvailableError(BrokerError, code=14):
    """The broker cannot write now (full disk, read-only store, shutting down)."""

    retriable = True


class NoPermissionError(BrokerError, code=16):
    """The broker, topic or group does not allow this; an operator can change its permissions."""


class TopicNotExistError(BrokerError, code=17):
    """The server has no such topic and may not create it; create the topic first."""


class QueryNotFoundError(BrokerError, code=22):
    """The requested message or entry does not exist."""


class SubscriptionParseError(BrokerError, code=23):
    """The broker cannot read the filter expression; the remark says where, change it."""


class SubscriptionGroupNotExistError(BrokerError, code=26):
    """The server has no such group and may not create it; create the group first."""


class InvalidParameterError(BrokerError, code=29):
    """A parameter of the request is outside its limits; the remark names it."""


class ConsumerNotOnlineError(BrokerError, code=206):
    """The consumer group has no connected member."""


class FlowControlError(BrokerError, code=(2, 215, 530, 42900)):
    """The server is over its capacity and did nothing; retry after a pause, or at another server.

    The codes: SYSTEM_BUSY (2) and FLOW_CONTROL (215) of Apache's servers, TOO_MANY_REQUESTS of
    RocketPy's (530) and of Apache's proxies (42900).

    Attributes:
        retry_after: seconds to wait before the next attempt, as in the back-off of sends.
    """

    retriable = True
    retry_after: float = 1.0


class ClientError(RocketPyError):
    """The client could not do what was asked."""


class IllegalMessageError(ClientError):
    """The message breaks a limit or rule and was not sent or stored; change the message."""


class MessageIllegalError(BrokerError, IllegalMessageError, code=13):
    """The broker refuses the message itself (too large, bad properties); change the message."""


class NotSentError(ClientError):
    """The message or request surely was not sent; a repeat cannot store a message twice.

    Args:
        message: why.
        retriable: whether the same call may succeed later.
    """

    retriable: bool = True

    def __init__(self, message: str, *, retriable: bool | None = None) -> None:
        super().__init__(message)
        if retriable is not None:
            self.retriable = retriable


class NoNameServerError(NotSentError):
    """No name server is configured, or none of them answers; the message lists them."""


class NameServerAddressError(NoNameServerError):
    """No name server address is given, or another service answers there; change the addresses."""

    retriable: bool = False


class NoRouteError(NotSentError):
    """No broker serves the topic now; it may be new, or its brokers may be down."""


class TopicNotWritableError(NoRouteError):
    """The topic's permission forbids writing; an operator can change that."""

    retriable: bool = False


class ConnectError(NotSentError):
    """A connection could not be opened; nothing was sent.

    Attributes:
        retry_in_ms: no other connection to this address is tried before.
    """

    def __init__(self, message: str, *, retry_in_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_in_ms = retry_in_ms


class ConnectionLostError(ClientError):
    """The connection closed before the response came; the request may have been executed."""

    retriable: bool = True


class RequestTimeoutError(ClientError, TimeoutError):
    """No response came in time; the request may have been executed."""

    retriable: bool = True


class TooManyInFlightError(NotSentError):
    """The limit of unanswered requests is reached, nothing was sent; wait for some to finish."""


class RemoteError(ClientError):
    """The responder has answered a request with an error: its handler raised.

    A repeated request is handled again, and fails again unless the cause has passed.

    Attributes:
        kind: the exception's class at the responder, `ValueError`.
        detail: the exception's text there, at most `MOST_REMARK_CHARACTERS` of it.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"the responder failed: {kind}: {detail}")
        self.kind = kind
        self.detail = detail


class HalfNotStoredError(ClientError):
    """The half message of a transaction is not known to be stored, so it did not begin.

    It may be stored nevertheless, if a response was lost: the broker then asks the producer's
    `tx_checker`, which should answer ROLLBACK for an unknown transaction.
    """

    retriable = True


class UnreadableBodyError(ClientError):
    """A received body cannot be read by the serializer or as the type; a retry fails as well.

    Its cause is the serializer's error. The sender is at fault, or the wrong serializer is set.
    Passed to the consumer's `on_error`; without one the message becomes a dead letter. Raised by
    `Producer.request` for an answer that is not of the `type` asked for.
    """


class PartlySentError(ClientError):
    """A batch that needed several requests failed after some of them were stored.

    Attributes:
        outcomes: for each message in the given order, its `SendResult`, or the error that says
            why it is not known to be stored. Send messages again whose error is retriable, and
            those that were not tried.
        stored: number of stored messages.
        retriable: whether the failed request's error is.
    """

    def __init__(self, outcomes: Sequence[object], *, stored: int, error: RocketPyError) -> None:
        super().__init__(f"{stored} of {len(outcomes)} messages are stored, then: {error}")
        self.outcomes: list[object] = list(outcomes)
        self.stored = stored
        self.retriable: bool = error.retriable


class ServersFailedError(ClientError):
    """Several servers were asked, and some of them failed; repeat the call if `retriable`.

    Attributes:
        done: results of the other servers by name; empty if none answered.
        failures: errors of the servers that failed, by name.
        retriable: whether every failure is.
    """

    def __init__(self, done: Mapping[str, object], failures: Mapping[str, RocketPyError]) -> None:
        words = "; ".join(f"{name}: {error}" for name, error in failures.items())
        super().__init__(words + (f"; done at {', '.join(done)}" if done else ""))
        self.done: dict[str, object] = dict(done)
        self.failures: dict[str, RocketPyError] = dict(failures)
        self.retriable: bool = all(error.retriable for error in failures.values())


class DataLossError(ClientError):
    """Messages that were to be read are gone: deleted, expired, or damaged at the broker.

    The text names queues and offsets, and how to continue without them.
    """


class OffsetFileError(ClientError):
    """The file with a broadcasting group's offsets cannot be read or written."""

    retriable = True


class ClosedError(ClientError):
    """The object was closed, or was never started."""


class StoreError(RocketPyError):
    """The files on disk cannot be trusted or written."""


class StoreLockedError(StoreError):
    """Another process has the store directory open."""


class StoreFormatError(StoreError):
    """A directory or file in a format that a store of this configuration does not have."""


class StoreReadOnlyError(StoreError):
    """A flush failed, so nothing more is acknowledged until a restart recovers the store."""


class ResourceShortError(StoreError):
    """The operating system refused a descriptor, mapping, memory or name.

    Nothing was written. The same call succeeds once the resource is available again.
    """

    retriable = True


class DiskFullError(ResourceShortError):
    """No disk space could be allocated; sending resumes when there is space again."""


class CorruptRecordError(StoreError):
    """A record in the commit log that does not match its checksum or lengths.

    Attributes:
        phy_offset: position in the commit log, in bytes.
    """

    def __init__(self, phy_offset: int, reason: str) -> None:
        super().__init__(f"record at physical offset {phy_offset}: {reason}")
        self.phy_offset = phy_offset


class LogGapError(StoreError):
    """A piece of another store's log does not begin where this log ends."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"the log ends at {expected}, was given bytes of {got}")
        self.expected = expected
        self.got = got


class QueueGapError(StoreError):
    """A consume queue was asked to skip an entry, which would lose a message."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"consume queue expects entry {expected}, was given entry {got}")
        self.expected = expected
        self.got = got


class ConfigError(RocketPyError):
    """A value of an option or a configuration key that cannot be used.

    Attributes:
        source: file or option that sets it.
        line: line number from 1, or None.
        key: the configuration key.
        reason: the text without source, line and key.
        all_errors: texts of all errors of the same configuration, this one first.
        warnings: texts of its warnings.
    """

    def __init__(
        self, reason: str, *, source: str = "", line: int | None = None, key: str = ""
    ) -> None:
        place = f"{source}:{line}: " if line is not None else f"{source}: " if source else ""
        super().__init__(f"{place}{key + ': ' if key else ''}{reason}")
        self.source = source
        self.line = line
        self.key = key
        self.reason = reason
        self.all_errors: tuple[str, ...] = (str(self),)
        self.warnings: tuple[str, ...] = ()


class StartError(RocketPyError):
    """A server cannot start; the text says why and what to do."""


class JobError(RocketPyError):
    """A job of the data pipeline cannot continue; the text says why and what to do."""
