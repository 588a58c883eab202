"""The admin operations without `await`: the same names, run by an event loop on another thread.

Example:
    ::

        from rocketpy.admin.sync import connect

        with connect("127.0.0.1:9876") as admin:
            admin.create_topic("orders", queues=8)
            print(admin.group_lag("billing"))
"""

import functools
from collections.abc import Callable
from typing import Any

from rocketpy.admin.admin import Admin as AsyncAdmin
from rocketpy.admin.admin import connect as connect_async
from rocketpy.client.blocking.facade import ClosableFacade, facade_of
from rocketpy.client.blocking.loop_thread import LoopThread

__all__ = ["Admin", "connect"]


@facade_of(AsyncAdmin, without=("servers",))  # its methods are coroutines
class Admin(ClosableFacade):
    """mqadmin's operations as methods that block; see `rocketpy.admin.Admin`.

    Safe to use from several threads. A process that forks must connect again in the child.

    Args:
        thread: runs the operations; closed by `close`.
        wrapped: the asynchronous operations.
    """

    def close(self) -> None:
        """Close the connections and end the thread; further calls do nothing."""
        if self._thread.is_of_parent or not self._thread.is_alive:
            return
        try:
            super().close()
        finally:
            self._thread.close()

    def __exit__(self, *error: object) -> None:
        self.close()


def _blocking_connect(function: Callable[..., AsyncAdmin]) -> Callable[..., Admin]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Admin:  # noqa: ANN401 - as `function`
        thread = LoopThread()
        try:
            return Admin(thread, thread.call(lambda: function(*args, **kwargs)))
        except BaseException:
            thread.close()
            raise

    return call


connect = _blocking_connect(connect_async)
