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
from typing import Final, ParamSpec

from rocketpy.admin.admin import Admin as AsyncAdmin
from rocketpy.admin.admin import connect as connect_async
from rocketpy.client.blocking.facade import BlockingFacade, awaited
from rocketpy.client.blocking.loop_thread import LoopThread

P = ParamSpec("P")


class Admin(BlockingFacade[AsyncAdmin]):
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

    invoke: Final = awaited(AsyncAdmin.invoke)
    cluster_info: Final = awaited(AsyncAdmin.cluster_info)
    broker_addresses: Final = awaited(AsyncAdmin.broker_addresses)
    broker_names: Final = awaited(AsyncAdmin.broker_names)
    topic_route: Final = awaited(AsyncAdmin.topic_route)
    topics: Final = awaited(AsyncAdmin.topics)
    topic_configs: Final = awaited(AsyncAdmin.topic_configs)
    topic_config: Final = awaited(AsyncAdmin.topic_config)
    topic_groups: Final = awaited(AsyncAdmin.topic_groups)
    topic_status: Final = awaited(AsyncAdmin.topic_status)
    topic_statistics: Final = awaited(AsyncAdmin.topic_statistics)
    create_topic: Final = awaited(AsyncAdmin.create_topic)
    update_topic: Final = awaited(AsyncAdmin.update_topic)
    put_topic_config: Final = awaited(AsyncAdmin.put_topic_config)
    delete_topic: Final = awaited(AsyncAdmin.delete_topic)
    order_conf: Final = awaited(AsyncAdmin.order_conf)
    set_order_conf: Final = awaited(AsyncAdmin.set_order_conf)
    delete_order_conf: Final = awaited(AsyncAdmin.delete_order_conf)
    topic_exists: Final = awaited(AsyncAdmin.topic_exists)
    group_configs: Final = awaited(AsyncAdmin.group_configs)
    group_config: Final = awaited(AsyncAdmin.group_config)
    create_group: Final = awaited(AsyncAdmin.create_group)
    update_group: Final = awaited(AsyncAdmin.update_group)
    delete_group: Final = awaited(AsyncAdmin.delete_group)
    groups: Final = awaited(AsyncAdmin.groups)
    group_lag: Final = awaited(AsyncAdmin.group_lag)
    queue_owners: Final = awaited(AsyncAdmin.queue_owners)
    consumer_connection: Final = awaited(AsyncAdmin.consumer_connection)
    group_members: Final = awaited(AsyncAdmin.group_members)
    producer_connection: Final = awaited(AsyncAdmin.producer_connection)
    producers: Final = awaited(AsyncAdmin.producers)
    running_info: Final = awaited(AsyncAdmin.running_info)
    reset_offset: Final = awaited(AsyncAdmin.reset_offset)
    clone_offsets: Final = awaited(AsyncAdmin.clone_offsets)
    set_offsets: Final = awaited(AsyncAdmin.set_offsets)
    message_by_offset_id: Final = awaited(AsyncAdmin.message_by_offset_id)
    message_by_unique_id: Final = awaited(AsyncAdmin.message_by_unique_id)
    message_by_id: Final = awaited(AsyncAdmin.message_by_id)
    messages_by_key: Final = awaited(AsyncAdmin.messages_by_key)
    message_at: Final = awaited(AsyncAdmin.message_at)
    peek: Final = awaited(AsyncAdmin.peek)
    trace: Final = awaited(AsyncAdmin.trace)
    brokers: Final = awaited(AsyncAdmin.brokers)
    broker_runtime: Final = awaited(AsyncAdmin.broker_runtime)
    broker_stats: Final = awaited(AsyncAdmin.broker_stats)
    ping_namesrv: Final = awaited(AsyncAdmin.ping_namesrv)
    ping_broker: Final = awaited(AsyncAdmin.ping_broker)
    wipe_write_permission: Final = awaited(AsyncAdmin.wipe_write_permission)
    add_write_permission: Final = awaited(AsyncAdmin.add_write_permission)
    broker_config: Final = awaited(AsyncAdmin.broker_config)
    update_broker_config: Final = awaited(AsyncAdmin.update_broker_config)
    namesrv_config: Final = awaited(AsyncAdmin.namesrv_config)
    update_namesrv_config: Final = awaited(AsyncAdmin.update_namesrv_config)
    clean_expired_queues: Final = awaited(AsyncAdmin.clean_expired_queues)
    clean_unused_topics: Final = awaited(AsyncAdmin.clean_unused_topics)
    delete_expired_log: Final = awaited(AsyncAdmin.delete_expired_log)
    kv_get: Final = awaited(AsyncAdmin.kv_get)
    kv_list: Final = awaited(AsyncAdmin.kv_list)
    kv_put: Final = awaited(AsyncAdmin.kv_put)
    kv_delete: Final = awaited(AsyncAdmin.kv_delete)


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


connect: Final = _blocking_connect(connect_async)
