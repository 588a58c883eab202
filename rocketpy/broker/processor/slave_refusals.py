"""Requests that a slave refuses: it stores no messages, and its tables follow the master's.

Codes and remarks of message requests are Apache's, so that clients try another broker. Changes of
topics, groups and offsets are refused, too: Apache's slave accepts them, and loses them with the
next synchronisation.

While the slave acts as master, sends are answered 14, so that producers drop its queues, and pulls
are served, because clients see it as the master.

Source: SendMessageProcessor.rejectRequest, PullMessageProcessor.rejectRequest,
EndTransactionProcessor, RecallMessageProcessor (5.4.0).
"""

from collections.abc import Callable
from typing import Final

from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.request_table import RequestTable
from rocketpy.proto.wire.codes import ROLE_CHANGE, RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor, Response

_BUSY: Final = "[REJECTREQUEST]system busy, start flow control for a while"
_SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
_SEND_BACKS: Final = (RequestCode.CONSUMER_SEND_MSG_BACK,)
_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_STORED_ENDS: Final = (
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
)
_CHANGES: Final = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
)


def refuse_at_slave(
    table: RequestTable,
    master: Callable[[], str],
    may_read: Callable[[], bool],
    is_acting: Callable[[], bool] = lambda: False,
    identity: BrokerIdentity | None = None,
    *,
    has_controller: bool = False,
) -> None:
    """Replace the processors of requests that a slave refuses.

    Args:
        table: all requests of the broker.
        master: returns the master's address; empty while it is unknown.
        may_read: returns whether pulls are served (slaveReadEnable).
        is_acting: returns whether the slave acts as master.
        identity: names and addresses of this broker, for the refusal of a send-back.
        has_controller: whether a controller names the master: clients with an old route then look
            for the new one at once.
    """

    def refuse_change() -> str:
        if is_acting():
            return (
                "the master is away, and the acting master changes no tables, as the master would "
                "not get the change: try again when it is back"
            )
        address = master()
        where = f"the master, {address}" if address else "the master"
        return f"this broker is a slave, its tables are copies: send the request to {where}"

    def busy() -> str:
        return f"{_BUSY} (a slave does not serve this request)"

    def not_stored() -> str:
        return "this broker is a slave and stores nothing: send the request to the master"

    def no_sends() -> str:
        return "the master is away, and the acting master stores nothing: send to another broker"

    def no_master() -> str:
        return f"no master available along with {identity.ip if identity else 'this broker'}"

    def acting_or_slave(code: ResponseCode, remark: Callable[[], str]) -> Processor:
        acting, slave = _refusing(code, remark), _refusing(ResponseCode.SYSTEM_BUSY, busy)

        def refuse(channel: Channel, request: RemotingCommand) -> Response:
            return (acting if is_acting() else slave)(channel, request)

        return refuse

    unavailable = acting_or_slave(ResponseCode.SERVICE_NOT_AVAILABLE, no_sends)
    if has_controller:
        unavailable = _refusing(ResponseCode.SERVICE_NOT_AVAILABLE, _other_master)
    table.replace(_SENDS, lambda _: unavailable)
    no_send_back = acting_or_slave(ResponseCode.SYSTEM_ERROR, no_master)
    table.replace(_SEND_BACKS, lambda _: no_send_back)
    table.replace(_STORED_ENDS, lambda _: _refusing(ResponseCode.SLAVE_NOT_AVAILABLE, not_stored))
    table.replace(_CHANGES, lambda _: _refusing(ResponseCode.SYSTEM_ERROR, refuse_change))
    refused_pull = _refusing(ResponseCode.SYSTEM_BUSY, busy)

    def guarded(processor: Processor) -> Processor:
        def pull(channel: Channel, request: RemotingCommand) -> Response:
            return (processor if may_read() or is_acting() else refused_pull)(channel, request)

        return pull

    table.replace(_PULLS, guarded)


def _other_master() -> str:
    return f"{ROLE_CHANGE} another replica is the master: ask for the route"


def _refusing(code: ResponseCode, remark: Callable[[], str]) -> Processor:
    def refuse(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return make_response(request, code, remark())

    return refuse
