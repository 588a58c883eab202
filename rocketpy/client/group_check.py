"""Whether a consumer's group exists: where brokers do not make groups, nobody else says it.

A broker drops a heartbeat's unknown groups in silence; later it says only that it knows no member
of such a group. What it says of a group that is not there comes with a pull.
"""

from typing import Final

from rocketpy.client.instance import Instance
from rocketpy.client.start_position import read_address
from rocketpy.errors import RocketPyError, SubscriptionGroupNotExistError
from rocketpy.proto.codes import ResponseCode
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.message_queue import MessageQueue

_TIMEOUT_MS: Final = 3_000


async def check_group_exists(instance: Instance, group: str, queue: MessageQueue) -> None:
    """Ask the broker of a queue, with a pull that changes nothing; for who is no member there.

    A heartbeat follows: once somebody makes the group, only that lets us in.

    Raises:
        SubscriptionGroupNotExistError: it has no such group, and makes none.
    """
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        bname=queue.broker_name,
    )
    instance.heartbeat_soon()
    try:
        address = read_address(instance, queue)
        response = await instance.api.pull(address, header, _TIMEOUT_MS)
    except RocketPyError:  # who asks has an error of its own to tell
        return
    if response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        raise SubscriptionGroupNotExistError(response.code, response.remark or "")
