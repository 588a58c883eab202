"""Business pools of a broker: threads, queue length and longest wait for each kind of request.

Source: BrokerController.initializeResources, registerProcessor (5.4.0).
"""

from rocketpy.broker.config import BrokerConfig
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.runtime.clock import Clock


def build_pools(
    config: BrokerConfig, clock: Clock, *, threads: bool = True
) -> dict[str, BusinessPool]:
    """Return the settings of all pools by kind (prefix of Apache's keys); 0 threads run inline.

    Args:
        config: sizes and limits.
        clock: time.
        threads: False runs all kinds inline.
    """
    unlimited = 0
    # Kind, threads, capacity, longest wait.
    pools = (
        ("send", config.send_message_thread_pool_nums,
         config.send_thread_pool_queue_capacity, config.wait_time_mills_in_send_queue),
        ("pull", config.pull_message_thread_pool_nums,
         config.pull_thread_pool_queue_capacity, config.wait_time_mills_in_pull_queue),
        ("litePull", config.lite_pull_message_thread_pool_nums,
         config.lite_pull_thread_pool_queue_capacity, config.wait_time_mills_in_lite_pull_queue),
        ("query", config.query_message_thread_pool_nums,
         config.query_thread_pool_queue_capacity, unlimited),
        ("clientManage", config.client_manage_thread_pool_nums,
         config.client_manager_thread_pool_queue_capacity, unlimited),
        ("consumerManage", config.consumer_manage_thread_pool_nums,
         config.consumer_manager_thread_pool_queue_capacity, unlimited),
        ("heartbeat", config.heartbeat_thread_pool_nums,
         config.heartbeat_thread_pool_queue_capacity, config.wait_time_mills_in_heartbeat_queue),
        ("ack", config.ack_message_thread_pool_nums,
         config.ack_thread_pool_queue_capacity, config.wait_time_mills_in_ack_queue),
        ("loadBalance", config.load_balance_processor_thread_pool_nums,
         config.load_balance_thread_pool_queue_capacity, unlimited),
        ("reply", config.process_reply_message_thread_pool_nums,
         config.reply_thread_pool_queue_capacity, unlimited),
        ("endTransaction", config.end_transaction_thread_pool_nums,
         config.end_transaction_pool_queue_capacity, config.wait_time_mills_in_transaction_queue),
        ("adminBroker", config.admin_broker_thread_pool_nums,
         config.admin_broker_thread_pool_queue_capacity,
         config.wait_time_mills_in_admin_broker_queue),
    )  # fmt: skip
    return {
        kind: BusinessPool(
            kind,
            size if threads else 0,
            capacity,
            wait_ms if config.broker_fast_failure_enable else unlimited,
            clock=clock,
        )
        for kind, size, capacity, wait_ms in pools
    }
