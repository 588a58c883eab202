"""All requests of a broker."""

import random

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.store.config import MessageStoreConfig
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles

# What mqadmin and consoles of 5.4.0 send to a broker; see the wire reference of each command.
ADMIN = {
    17, 18, 21, 25, 26, 28, 43, 45, 60, 61,
    200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 225, 300, 303,
    305, 306, 307, 308, 309, 314, 315, 316, 317, 321, 323, 328, 329, 343, 345, 351, 352, 353, 907,
    908, 1007, 2001, 2002, 2003, 2004, *range(3001, 3011),
}  # fmt: skip
OTHERS = {
    "send": {10, 36, 310, 320, 370},
    "pull": {11, 200050, 200052, 200054, 200055},
    "ack": {200051, 200053, 200151},
    "litePull": {361},
    "endTransaction": {37},
    "reply": {324, 325},
    "heartbeat": {34},
    "clientManage": {35, 46},
    "loadBalance": {400, 401, 402},
    "query": {12, 33},
}


def test_requests_run_on_the_pool_of_their_kind() -> None:
    clock = SimClock()
    broker = Broker(
        BrokerConfig(broker_name="b", listen_port=0),
        store_config=MessageStoreConfig(store_path_root_dir="/store"),
        clock=clock,
        rng=random.Random(1),
        files=SimFiles(clock),
    )
    kinds: dict[str, set[int]] = {}
    for code, route in broker.requests.routes.items():
        kinds.setdefault(route.kind, set()).add(code)
    assert kinds.pop("adminBroker") == ADMIN
    consumers = kinds.pop("consumerManage")
    assert consumers >= {14, 15, 29, 30, 31, 38, 41, 42}
    assert kinds == OTHERS


def test_requests_of_name_servers_are_processed_with_acting_masters_only() -> None:
    clock = SimClock()
    for is_enabled in (False, True):
        broker = Broker(
            BrokerConfig(
                broker_name="b",
                listen_port=0,
                namesrv_addr="n:1",
                enable_slave_acting_master=is_enabled,
            ),
            store_config=MessageStoreConfig(store_path_root_dir="/store"),
            clock=clock,
            rng=random.Random(1),
            files=SimFiles(clock),
        )
        assert (905 in broker.requests.routes) is is_enabled
