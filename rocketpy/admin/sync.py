"""The admin operations without `await`: the same names, on an event loop of its own thread.

Example:
    ::

        from rocketpy.admin.sync import connect

        with connect("127.0.0.1:9876") as admin:
            admin.create_topic("orders", queues=8)
            print(admin.group_lag("billing"))
"""

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rocketpy.admin.admin import Admin as AsyncAdmin
from rocketpy.admin.admin import connect as connect_async
from rocketpy.client.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["Admin", P], R]:
    """Make a method that waits for one of the asynchronous admin."""

    @functools.wraps(method)
    def call(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(method(self._wrapped, *args, **kwargs))

    return call


class Admin:
    """mqadmin's operations as methods that block; see `rocketpy.admin.Admin`.

    Safe to use from several threads. A process that forks must connect again in the child.

    Args:
        thread: where the operations run; closed by `close`.
        wrapped: the operations.
    """

    def __init__(self, thread: LoopThread, wrapped: AsyncAdmin) -> None:
        self._thread = thread
        self._wrapped = wrapped

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return self._thread.run(work)

    def __enter__(self) -> Self:
        return self

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
            self._run(self._wrapped.close())
        finally:
            self._thread.close()

    invoke = _blocking(AsyncAdmin.invoke)
    cluster_info = _blocking(AsyncAdmin.cluster_info)
    broker_addresses = _blocking(AsyncAdmin.broker_addresses)
    broker_names = _blocking(AsyncAdmin.broker_names)
    topic_route = _blocking(AsyncAdmin.topic_route)
    topics = _blocking(AsyncAdmin.topics)
    topic_configs = _blocking(AsyncAdmin.topic_configs)
    topic_config = _blocking(AsyncAdmin.topic_config)
    topic_groups = _blocking(AsyncAdmin.topic_groups)
    topic_status = _blocking(AsyncAdmin.topic_status)
    topic_statistics = _blocking(AsyncAdmin.topic_statistics)
    create_topic = _blocking(AsyncAdmin.create_topic)
    update_topic = _blocking(AsyncAdmin.update_topic)
    put_topic_config = _blocking(AsyncAdmin.put_topic_config)
    delete_topic = _blocking(AsyncAdmin.delete_topic)
    order_conf = _blocking(AsyncAdmin.order_conf)
    set_order_conf = _blocking(AsyncAdmin.set_order_conf)
    delete_order_conf = _blocking(AsyncAdmin.delete_order_conf)
    topic_exists = _blocking(AsyncAdmin.topic_exists)
    group_configs = _blocking(AsyncAdmin.group_configs)
    group_config = _blocking(AsyncAdmin.group_config)
    create_group = _blocking(AsyncAdmin.create_group)
    update_group = _blocking(AsyncAdmin.update_group)
    delete_group = _blocking(AsyncAdmin.delete_group)
    groups = _blocking(AsyncAdmin.groups)
    group_lag = _blocking(AsyncAdmin.group_lag)
    queue_owners = _blocking(AsyncAdmin.queue_owners)
    consumer_connection = _blocking(AsyncAdmin.consumer_connection)
    group_members = _blocking(AsyncAdmin.group_members)
    producer_connection = _blocking(AsyncAdmin.producer_connection)
    producers = _blocking(AsyncAdmin.producers)
    running_info = _blocking(AsyncAdmin.running_info)
    reset_offset = _blocking(AsyncAdmin.reset_offset)
    clone_offsets = _blocking(AsyncAdmin.clone_offsets)
    set_offsets = _blocking(AsyncAdmin.set_offsets)
    message_by_offset_id = _blocking(AsyncAdmin.message_by_offset_id)
    message_by_unique_id = _blocking(AsyncAdmin.message_by_unique_id)
    message_by_id = _blocking(AsyncAdmin.message_by_id)
    messages_by_key = _blocking(AsyncAdmin.messages_by_key)
    message_at = _blocking(AsyncAdmin.message_at)
    peek = _blocking(AsyncAdmin.peek)
    trace = _blocking(AsyncAdmin.trace)
    brokers = _blocking(AsyncAdmin.brokers)
    broker_runtime = _blocking(AsyncAdmin.broker_runtime)
    broker_stats = _blocking(AsyncAdmin.broker_stats)
    ping_namesrv = _blocking(AsyncAdmin.ping_namesrv)
    ping_broker = _blocking(AsyncAdmin.ping_broker)
    wipe_write_permission = _blocking(AsyncAdmin.wipe_write_permission)
    add_write_permission = _blocking(AsyncAdmin.add_write_permission)
    broker_config = _blocking(AsyncAdmin.broker_config)
    update_broker_config = _blocking(AsyncAdmin.update_broker_config)
    namesrv_config = _blocking(AsyncAdmin.namesrv_config)
    update_namesrv_config = _blocking(AsyncAdmin.update_namesrv_config)
    clean_expired_queues = _blocking(AsyncAdmin.clean_expired_queues)
    clean_unused_topics = _blocking(AsyncAdmin.clean_unused_topics)
    delete_expired_log = _blocking(AsyncAdmin.delete_expired_log)
    kv_get = _blocking(AsyncAdmin.kv_get)
    kv_list = _blocking(AsyncAdmin.kv_list)
    kv_put = _blocking(AsyncAdmin.kv_put)
    kv_delete = _blocking(AsyncAdmin.kv_delete)


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
