"""The business pools of a broker: which kind of request waits where, and how long.

Source: BrokerController.initializeResources, registerProcessor (5.4.0).
"""

from rocketpy.broker.config import BrokerConfig
from rocketpy.remoting.business import BusinessPool
from rocketpy.runtime.clock import Clock


def build_pools(config: BrokerConfig, clock: Clock) -> dict[str, BusinessPool]:
    """Describe every pool by its kind, as Apache's keys begin; 0 threads run inline."""
    no_limit = 0

    def pool(kind: str, threads: int, capacity: int, wait_ms: int = no_limit) -> BusinessPool:
        limit_ms = wait_ms if config.broker_fast_failure_enable else no_limit
        return BusinessPool(kind, threads, capacity, limit_ms, clock=clock)

    pools = (
        pool(
            "send",
            config.send_message_thread_pool_nums,
            config.send_thread_pool_queue_capacity,
            config.wait_time_mills_in_send_queue,
        ),
        pool(
            "pull",
            config.pull_message_thread_pool_nums,
            config.pull_thread_pool_queue_capacity,
            config.wait_time_mills_in_pull_queue,
        ),
        pool(
            "litePull",
            config.lite_pull_message_thread_pool_nums,
            config.lite_pull_thread_pool_queue_capacity,
            config.wait_time_mills_in_lite_pull_queue,
        ),
        pool(
            "query",
            config.query_message_thread_pool_nums,
            config.query_thread_pool_queue_capacity,
        ),
        pool(
            "clientManage",
            config.client_manage_thread_pool_nums,
            config.client_manager_thread_pool_queue_capacity,
        ),
        pool(
            "consumerManage",
            config.consumer_manage_thread_pool_nums,
            config.consumer_manager_thread_pool_queue_capacity,
        ),
        pool(
            "heartbeat",
            config.heartbeat_thread_pool_nums,
            config.heartbeat_thread_pool_queue_capacity,
            config.wait_time_mills_in_heartbeat_queue,
        ),
        pool(
            "loadBalance",
            config.load_balance_processor_thread_pool_nums,
            config.load_balance_thread_pool_queue_capacity,
        ),
        pool(
            "adminBroker",
            config.admin_broker_thread_pool_nums,
            config.admin_broker_thread_pool_queue_capacity,
            config.wait_time_mills_in_admin_broker_queue,
        ),
    )
    return {one.name: one for one in pools}
