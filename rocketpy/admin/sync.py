"""The admin operations without `await`: the same names, on an event loop of its own thread.

Example:
    ::

        from rocketpy.admin.sync import connect

        with connect("127.0.0.1:9876") as admin:
            admin.create_topic("orders", queues=8)
            print(admin.group_lag("billing"))
"""

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec

from rocketpy.admin.admin import Admin as AsyncAdmin
from rocketpy.admin.admin import connect as connect_async
from rocketpy.client.blocking_face import Face, awaited
from rocketpy.client.loop_thread import LoopThread

P = ParamSpec("P")


class Admin(Face[AsyncAdmin]):
    """mqadmin's operations as methods that block; see `rocketpy.admin.Admin`.

    Safe to use from several threads. A process that forks must connect again in the child.

    Args:
        thread: where the operations run; closed by `close`.
        wrapped: the operations.
    """

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread; a second time does nothing."""
        if self._thread.is_of_parent or not self._thread.is_alive:
            return
        try:
            super().close()
        finally:
            self._thread.close()

    invoke = awaited(AsyncAdmin.invoke)
    cluster_info = awaited(AsyncAdmin.cluster_info)
    broker_addresses = awaited(AsyncAdmin.broker_addresses)
    broker_names = awaited(AsyncAdmin.broker_names)
    topic_route = awaited(AsyncAdmin.topic_route)
    topics = awaited(AsyncAdmin.topics)
    topic_configs = awaited(AsyncAdmin.topic_configs)
    topic_config = awaited(AsyncAdmin.topic_config)
    topic_groups = awaited(AsyncAdmin.topic_groups)
    topic_status = awaited(AsyncAdmin.topic_status)
    topic_statistics = awaited(AsyncAdmin.topic_statistics)
    create_topic = awaited(AsyncAdmin.create_topic)
    update_topic = awaited(AsyncAdmin.update_topic)
    put_topic_config = awaited(AsyncAdmin.put_topic_config)
    delete_topic = awaited(AsyncAdmin.delete_topic)
    order_conf = awaited(AsyncAdmin.order_conf)
    set_order_conf = awaited(AsyncAdmin.set_order_conf)
    delete_order_conf = awaited(AsyncAdmin.delete_order_conf)
    topic_exists = awaited(AsyncAdmin.topic_exists)
    group_configs = awaited(AsyncAdmin.group_configs)
    group_config = awaited(AsyncAdmin.group_config)
    create_group = awaited(AsyncAdmin.create_group)
    update_group = awaited(AsyncAdmin.update_group)
    delete_group = awaited(AsyncAdmin.delete_group)
    groups = awaited(AsyncAdmin.groups)
    group_lag = awaited(AsyncAdmin.group_lag)
    queue_owners = awaited(AsyncAdmin.queue_owners)
    consumer_connection = awaited(AsyncAdmin.consumer_connection)
    group_members = awaited(AsyncAdmin.group_members)
    producer_connection = awaited(AsyncAdmin.producer_connection)
    producers = awaited(AsyncAdmin.producers)
    running_info = awaited(AsyncAdmin.running_info)
    reset_offset = awaited(AsyncAdmin.reset_offset)
    clone_offsets = awaited(AsyncAdmin.clone_offsets)
    set_offsets = awaited(AsyncAdmin.set_offsets)
    message_by_offset_id = awaited(AsyncAdmin.message_by_offset_id)
    message_by_unique_id = awaited(AsyncAdmin.message_by_unique_id)
    message_by_id = awaited(AsyncAdmin.message_by_id)
    messages_by_key = awaited(AsyncAdmin.messages_by_key)
    message_at = awaited(AsyncAdmin.message_at)
    peek = awaited(AsyncAdmin.peek)
    trace = awaited(AsyncAdmin.trace)
    brokers = awaited(AsyncAdmin.brokers)
    broker_runtime = awaited(AsyncAdmin.broker_runtime)
    broker_stats = awaited(AsyncAdmin.broker_stats)
    ping_namesrv = awaited(AsyncAdmin.ping_namesrv)
    ping_broker = awaited(AsyncAdmin.ping_broker)
    wipe_write_permission = awaited(AsyncAdmin.wipe_write_permission)
    add_write_permission = awaited(AsyncAdmin.add_write_permission)
    broker_config = awaited(AsyncAdmin.broker_config)
    update_broker_config = awaited(AsyncAdmin.update_broker_config)
    namesrv_config = awaited(AsyncAdmin.namesrv_config)
    update_namesrv_config = awaited(AsyncAdmin.update_namesrv_config)
    clean_expired_queues = awaited(AsyncAdmin.clean_expired_queues)
    clean_unused_topics = awaited(AsyncAdmin.clean_unused_topics)
    delete_expired_log = awaited(AsyncAdmin.delete_expired_log)
    kv_get = awaited(AsyncAdmin.kv_get)
    kv_list = awaited(AsyncAdmin.kv_list)
    kv_put = awaited(AsyncAdmin.kv_put)
    kv_delete = awaited(AsyncAdmin.kv_delete)


def _blocking_connect(function: Callable[P, AsyncAdmin]) -> Callable[P, Admin]:
    @functools.wraps(function)
    def connected(*args: P.args, **kwargs: P.kwargs) -> Admin:
        thread = LoopThread()
        try:
            return Admin(thread, thread.call(lambda: function(*args, **kwargs)))
        except BaseException:
            thread.close()
            raise

    return connected


connect = _blocking_connect(connect_async)
