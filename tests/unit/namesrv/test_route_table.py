from dataclasses import replace
from typing import Any

import pytest

from rocketpy.namesrv.registration import Registration
from rocketpy.namesrv.route_table import RouteTable
from rocketpy.namesrv.route_types import BrokerKey, MinBrokerChange, RegisterOutcome, RouteLimits
from rocketpy.proto.bodies.route import QueueData
from rocketpy.proto.bodies.topic import DataVersion, TopicConfig
from rocketpy.runtime.service import run_to_end


def topics(*names: str, **changes: Any) -> dict[str, TopicConfig]:
    return {name: TopicConfig(topic_name=name, **changes) for name in names}


def broker(name: str = "broker-a", number: int = 0, **changes: object) -> Registration:
    told = Registration(
        cluster="c1",
        broker_name=name,
        broker_id=number,
        address=f"{name}:1091{number}",
        ha_address=f"{name}:1092{number}",
        data_version=DataVersion(timestamp=1, counter=1),
        topics=topics("t1", "t2"),
        enable_acting_master=False,
    )
    return replace(told, **changes)  # type: ignore[arg-type]


KEY = BrokerKey("c1", "broker-a:10910")


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


def register(table: RouteTable, told: Registration, now_ms: int = 0) -> RegisterOutcome:
    return table.register(told, f"connection of {told.address}", now_ms).outcome


def perms(table: RouteTable, topic: str) -> dict[str, int]:
    route = table.route(topic)
    return {} if route is None else {each.broker_name: each.perm for each in route.queue_datas}


def test_registered_topic_has_a_route(table: RouteTable) -> None:
    result = table.register(broker(), object(), 0)
    assert (result.outcome, result.is_new) == (RegisterOutcome.OK, True)
    route = table.route("t1")
    assert route is not None
    assert route.queue_datas == [QueueData("broker-a", 16, 16, 6, 0)]
    assert route.broker_datas[0].broker_addrs == {0: "broker-a:10910"}
    assert table.route("unknown") is None
    assert table.clusters() == {"c1": ["broker-a"]}
    assert table.topics() == ["t1", "t2"]
    assert not table.register(broker(), object(), 0).is_new


def test_topics_are_taken_over_only_when_the_version_changed(table: RouteTable) -> None:
    register(table, broker())
    register(table, broker(topics=topics("t1", "t2", read_queue_nums=4)))
    route = table.route("t1")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 16
    register(
        table,
        broker(topics=topics("t1", read_queue_nums=4), data_version=DataVersion(1, 2)),
    )
    route = table.route("t1")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 4
    assert table.topics() == ["t1", "t2"]


def test_topic_new_to_the_table_is_taken_over_with_the_same_version(table: RouteTable) -> None:
    register(table, broker())
    register(table, broker(topics=topics("t3")))
    assert table.topics() == ["t1", "t2", "t3"]


def test_one_topic_before_the_full_list_is_refused(table: RouteTable) -> None:
    assert register(table, broker(topics=topics("t1"))) is RegisterOutcome.NOT_YET_REGISTERED
    assert table.topics() == []
    assert table.clusters() == {}
    assert table.data_version(KEY) is None


def test_full_list_may_remove_what_it_lacks(table: RouteTable) -> None:
    register(table, broker())
    register(table, broker("broker-b"))
    told = broker(topics=topics("t2", "t9"), data_version=DataVersion(1, 2))
    table.register(told, object(), 0, delete_missing=True)
    assert perms(table, "t1") == {"broker-b": 6}
    assert table.topics() == ["t1", "t2", "t9"]


def test_register_slave_returns_master_and_ignores_topics(table: RouteTable) -> None:
    register(table, broker())
    slave = broker(number=1, topics=topics("t1", "other"))
    result = table.register(slave, object(), 0)
    assert (result.master_address, result.ha_address) == ("broker-a:10910", "broker-a:10920")
    assert table.topics() == ["t1", "t2"]
    assert table.members("broker-a") == {0: "broker-a:10910", 1: "broker-a:10911"}
    assert table.members("unknown") == {}


def test_route_acting_master_is_the_lowest_slave_read_only(table: RouteTable) -> None:
    register(table, broker(number=1, enable_acting_master=True))
    assert perms(table, "t1") == {"broker-a": 4}
    route = table.route("t1", acting_master=True)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "broker-a:10911"}
    plain = table.route("t1")
    assert plain is not None
    assert plain.broker_datas[0].broker_addrs == {1: "broker-a:10911"}


def test_slave_of_an_old_version_brings_no_topics(table: RouteTable) -> None:
    register(table, broker(number=1, enable_acting_master=None))
    assert table.topics() == []


def test_lost_master_makes_its_set_read_only(table: RouteTable) -> None:
    register(table, broker(enable_acting_master=True))
    register(table, broker(number=1, enable_acting_master=True))
    change = table.unregister(KEY, "broker-a")
    assert perms(table, "t1") == {"broker-a": 4}
    assert change == MinBrokerChange(
        "broker-a", {1: "broker-a:10911"}, "broker-a:10910", "broker-a:10921"
    )
    register(table, broker(enable_acting_master=True))
    assert perms(table, "t1") == {"broker-a": 6}


def test_new_lowest_id_is_reported(table: RouteTable) -> None:
    register(table, broker(number=1, enable_acting_master=True))
    result = table.register(broker(), object(), 0)
    assert result.min_change is not None
    assert min(result.min_change.members) == 0
    assert result.min_change.offline_address is None


def test_slave_that_becomes_master_leaves_its_old_id(table: RouteTable) -> None:
    register(table, broker(number=1))
    register(table, broker(address="broker-a:10911"))
    assert table.members("broker-a") == {0: "broker-a:10911"}


def test_register_lower_state_version_is_rejected(table: RouteTable) -> None:
    register(table, broker(data_version=DataVersion(1, 1, state_version=5)))
    late = broker(address="other:1", data_version=DataVersion(9, 9, state_version=4))
    assert register(table, late) is RegisterOutcome.STALE
    assert table.members("broker-a") == {0: "broker-a:10910"}
    newer = broker(address="other:1", data_version=DataVersion(9, 9, state_version=6))
    assert register(table, newer) is RegisterOutcome.OK
    assert table.members("broker-a") == {0: "other:1"}


def test_unregistering_takes_broker_topics_and_cluster(table: RouteTable) -> None:
    register(table, broker())
    register(table, broker("broker-b", cluster="c2", topics=topics("t2", "t3")))
    assert table.unregister(KEY, "broker-a") is None
    assert table.topics() == ["t2", "t3"]
    assert table.clusters() == {"c2": ["broker-b"]}
    assert list(table.brokers()) == ["broker-b"]
    assert table.unregister(KEY, "broker-a") is None


def test_closed_connection_takes_its_brokers_at_once(table: RouteTable) -> None:
    first, second = object(), object()
    table.register(broker(), first, 0)
    table.register(broker("broker-b"), first, 0)
    table.register(broker("broker-c"), second, 0)
    gone = table.connection_closed(first)
    assert sorted(key.address for key, _ in gone) == ["broker-a:10910", "broker-b:10910"]
    assert perms(table, "t1") == {"broker-c": 6}
    assert table.connection_closed(first) == []


def test_broker_that_reconnected_outlives_its_old_connection(table: RouteTable) -> None:
    old, new = object(), object()
    table.register(broker(), old, 0)
    table.register(broker(), new, 1)
    assert table.connection_closed(old) == []
    assert table.route("t1") is not None


def test_expire_removes_brokers_after_their_timeout(table: RouteTable) -> None:
    register(table, broker())
    register(table, broker("broker-b", timeout_ms=1_000))
    assert table.expire(1_000) == []
    assert table.expire(1_001) == [
        (BrokerKey("c1", "broker-b:10910"), "connection of broker-b:10910")
    ]
    table.touch(KEY, 100_000)
    table.touch(BrokerKey("c1", "unknown:1"), 100_000)
    assert table.expire(220_000) == []
    assert [key for key, _ in table.expire(220_001)] == [KEY]
    assert table.topics() == []


def test_write_permission_is_wiped_and_added_until_the_next_change(table: RouteTable) -> None:
    register(table, broker())
    register(table, broker("broker-b", topics=topics("t1", "t9")))
    assert run_to_end(table.wipe_write_perm("broker-a")) == 2
    assert perms(table, "t1") == {"broker-a": 4, "broker-b": 6}
    register(table, broker())
    assert perms(table, "t1") == {"broker-a": 4, "broker-b": 6}
    assert run_to_end(table.add_write_perm("broker-a")) == 2
    assert perms(table, "t1") == {"broker-a": 6, "broker-b": 6}
    assert run_to_end(table.wipe_write_perm("unknown")) == 0
    run_to_end(table.wipe_write_perm("broker-a"))
    register(table, broker(data_version=DataVersion(1, 2)))
    assert perms(table, "t1") == {"broker-a": 6, "broker-b": 6}


def test_permissions_of_very_many_topics_change_a_few_at_a_time(table: RouteTable) -> None:
    names = [f"t{number}" for number in range(3_000)]
    register(table, broker(topics=topics(*names)))
    assert table.serves_many("broker-a")
    assert not table.serves_many("unknown")
    steps = table.wipe_write_perm("broker-a")
    next(steps)
    assert perms(table, names[0]) == {"broker-a": 4}
    assert perms(table, names[-1]) == {"broker-a": 6}
    table.delete_topic(names[-1])  # while others have their turn
    register(table, broker("broker-b", topics=topics("t1", "t9")))
    assert run_to_end(steps) == 2_999
    assert perms(table, names[-2]) == {"broker-a": 4}
    assert perms(table, "t1") == {"broker-a": 4, "broker-b": 6}
    assert table.route(names[-1]) is None


def test_topics_are_deleted_everywhere_or_in_one_cluster(table: RouteTable) -> None:
    register(table, broker())
    register(table, broker("broker-b", cluster="c2"))
    table.delete_topic("t1", "c2")
    assert perms(table, "t1") == {"broker-a": 6}
    table.delete_topic("t1", "unknown")
    table.delete_topic("t2")
    assert table.topics() == ["t1"]
    table.delete_topic("t2")


def test_one_topic_is_merged_from_its_brokers(table: RouteTable) -> None:
    register(table, broker())
    queues = QueueData("broker-a", 1, 1, 6, 0)
    assert table.register_topic("new", [queues])
    assert perms(table, "new") == {"broker-a": 6}
    assert not table.register_topic("new2", [queues, QueueData("stranger", 1, 1, 6, 0)])
    assert table.topics() == ["new", "t1", "t2"]


def test_topic_lists(table: RouteTable) -> None:
    register(table, broker(topics=topics("t1", "t2", topic_sys_flag=3)))
    register(table, broker("broker-b", cluster="c2", topics=topics("t2", "t3")))
    assert table.topics_of_cluster("c2") == ["t2", "t3"]
    assert table.topics_of_cluster("unknown") == []
    assert table.topics_by_flag(lambda flag: flag == 3) == ["t1", "t2"]


def test_static_mappings_and_filter_servers_are_passed_through(table: RouteTable) -> None:
    register(table, broker(mappings={"t1": {"bname": "broker-a"}}, filter_servers=["f:1"]))
    route = table.route("t1")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"broker-a": {"bname": "broker-a"}}
    assert route.filter_server_table == {"broker-a:10910": ["f:1"]}
    plain = table.route("t2")
    assert plain is not None
    assert plain.topic_queue_mapping_by_broker is None
    table.unregister(KEY, "broker-a")
    register(table, broker())
    route = table.route("t1")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is None


def test_tables_are_bounded(table: RouteTable) -> None:
    table.limits = RouteLimits(max_topics=3, max_brokers=2)
    told = broker(topics=topics(*(f"t{number}" for number in range(10))))
    assert table.register(told, object(), 0).dropped_topics == 7
    assert len(table.topics()) == 3
    assert not table.register_topic("another", [QueueData("broker-a", 1, 1, 6, 0)])
    register(table, broker("broker-b"))
    assert register(table, broker("broker-c")) is RegisterOutcome.FULL
    assert register(table, broker("broker-b")) is RegisterOutcome.OK
    assert list(table.brokers()) == ["broker-a", "broker-b"]


def test_pairs_of_topic_and_broker_are_bounded(table: RouteTable) -> None:
    table.limits = RouteLimits(max_routes=3, max_mappings=1)
    register(table, broker(mappings={"t1": {"m": 1}, "t2": {"m": 2}}))
    assert table.register(broker("broker-b"), object(), 0).dropped_topics == 1
    first, second = table.route("t1"), table.route("t2")
    assert first is not None
    assert second is not None
    assert first.topic_queue_mapping_by_broker == {"broker-a": {"m": 1}}
    assert second.topic_queue_mapping_by_broker is None
    table.unregister(KEY, "broker-a")
    assert table.register(broker("broker-b"), object(), 0).dropped_topics == 0
    assert table.register(broker("broker-c"), object(), 0).dropped_topics == 1


def test_register_same_address_replaces_other_names(table: RouteTable) -> None:
    for number in range(20):
        register(table, broker(f"name-{number}", address="same:1"))
    assert list(table.brokers()) == ["name-19"]
    assert table.clusters() == {"c1": ["name-19"]}
    assert perms(table, "t1") == {"name-19": 6}


def test_broker_that_changes_its_cluster_leaves_the_old_one(table: RouteTable) -> None:
    register(table, broker())
    register(table, broker(cluster="c2"))
    assert table.clusters() == {"c2": ["broker-a"]}


def test_unregister_removes_topics_of_the_broker(table: RouteTable) -> None:
    register(table, broker())
    register(table, broker("broker-b"))
    table.delete_topic("t1")
    told = broker(topics=topics("t2", "t3"), data_version=DataVersion(timestamp=2, counter=2))
    table.register(told, "again", 0, delete_missing=True)
    table.unregister(KEY, "broker-a")
    assert table.topics() == ["t2"]
    table.unregister(BrokerKey("c1", "broker-b:10910"), "broker-b")
    assert table.topics() == []


def test_registration_of_many_topics_pauses_and_shows_each_topic_whole(table: RouteTable) -> None:
    names = [f"t{number}" for number in range(5_000)]
    register(table, broker(topics=topics(*names, perm=6)))
    told = broker(topics=topics(*names, perm=4), data_version=DataVersion(2, 2))
    steps = table.register_in_steps(told, "again", 1)
    pauses = 0
    seen = []
    for _ in steps:
        pauses += 1
        seen.append(sum(perms(table, name)["broker-a"] == 4 for name in names))
        assert table.data_version(KEY) is None, "it is not wholly there"
        assert len(table.topics()) == 5_000
    assert pauses == 5
    assert seen == sorted(seen)
    assert seen[0] < 5_000 == seen[-1]
    assert table.data_version(KEY) == DataVersion(2, 2)


def test_register_overtaken_by_another_stops(table: RouteTable) -> None:
    names = [f"t{number}" for number in range(3_000)]
    first = table.register_in_steps(broker(topics=topics(*names, perm=2)), "first", 0)
    next(first)
    later = broker(topics=topics(*names, perm=6))
    result = table.register(later, "second", 1)
    assert (result.outcome, result.is_new) == (RegisterOutcome.OK, False)
    with pytest.raises(StopIteration) as ended:
        next(first)
    assert ended.value.value.outcome is RegisterOutcome.OVERTAKEN
    assert {perms(table, name)["broker-a"] for name in names} == {6}
    assert table.data_version(KEY) == DataVersion(1, 1)


def test_register_of_a_leaving_broker_leaves_nothing(table: RouteTable) -> None:
    names = [f"t{number}" for number in range(3_000)]
    steps = table.register_in_steps(broker(topics=topics(*names)), "first", 0)
    next(steps)
    table.connection_closed("first")
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value.outcome is RegisterOutcome.OVERTAKEN
    assert table.topics() == []
    assert table.brokers() == {}


# ---- two live brokers of one name and id

COPY = BrokerKey("c1", "copy:10910")


def copy(**changes: object) -> Registration:
    return replace(
        broker(address="copy:10910", topics=topics("t1", "t2", "t3")),
        **changes,  # type: ignore[arg-type]
    )


def test_second_live_broker_waits_and_the_first_keeps_its_routes(table: RouteTable) -> None:
    register(table, broker())
    result = table.register(copy(), "other", 10)
    assert (result.outcome, result.rival) == (RegisterOutcome.WAITING, "broker-a:10910")
    assert result.is_new
    assert not table.register(copy(), "other", 20).is_new
    assert table.members("broker-a") == {0: "broker-a:10910"}
    assert table.topics() == ["t1", "t2"]
    again = table.register(broker(), f"connection of {KEY.address}", 30)
    assert (again.outcome, again.rival) == (RegisterOutcome.OK, "copy:10910")
    assert table.take_over() == []


@pytest.mark.parametrize("end", ["unregisters", "connection closes", "expires"])
def test_second_broker_takes_over_at_once_when_the_first_leaves(
    table: RouteTable, end: str
) -> None:
    first = object()
    table.register(broker(), first, 0)
    table.register(copy(), "other", 110_000)
    table.register(copy(topics=topics("t4"), data_version=DataVersion(1, 2)), "other", 110_001)
    if end == "unregisters":
        table.unregister(KEY, "broker-a")
    elif end == "connection closes":
        table.connection_closed(first)
    else:
        assert [key for key, _ in table.expire(120_001)] == [KEY]
    [(told, result)] = table.take_over()
    assert (told.address, result.outcome) == ("copy:10910", RegisterOutcome.OK)
    assert table.members("broker-a") == {0: "copy:10910"}
    assert table.topics() == ["t1", "t2", "t3", "t4"]
    assert table.data_version(COPY) == DataVersion(1, 2)
    assert table.take_over() == []


@pytest.mark.parametrize("end", ["unregisters", "connection closes", "expires"])
def test_second_broker_that_leaves_changes_nothing(table: RouteTable, end: str) -> None:
    register(table, broker())
    table.register(copy(), "other", 0)
    table.touch(KEY, 119_000)
    if end == "unregisters":
        assert table.unregister(COPY, "broker-a") is None
    elif end == "connection closes":
        assert table.connection_closed("other") == []
    else:
        assert table.expire(120_001) == [(COPY, "other")]
    table.unregister(KEY, "broker-a")
    assert table.take_over() == []
    assert table.members("broker-a") == {}


def test_restarted_broker_replaces_itself(table: RouteTable) -> None:
    register(table, broker())
    assert table.register(broker(), "new connection", 1).outcome is RegisterOutcome.OK
    assert table.register(copy(), "new connection", 2).outcome is RegisterOutcome.OK, (
        "a new address on the same connection"
    )
    assert table.members("broker-a") == {0: "copy:10910"}
    table.connection_closed("new connection")
    assert table.register(broker(), "third", 3).outcome is RegisterOutcome.OK


def test_elected_master_replaces_the_former_one(table: RouteTable) -> None:
    register(table, broker())
    elected = copy(data_version=DataVersion(1, 1, state_version=2))
    assert register(table, elected) is RegisterOutcome.OK
    assert register(table, broker()) is RegisterOutcome.STALE


def test_second_broker_of_another_cluster_waits_as_well(table: RouteTable) -> None:
    register(table, broker())
    assert register(table, copy(cluster="c2")) is RegisterOutcome.WAITING
    assert table.clusters() == {"c1": ["broker-a"]}


def test_waiting_brokers_are_bounded(table: RouteTable) -> None:
    table.limits = RouteLimits(max_brokers=2)
    register(table, broker())
    assert register(table, copy()) is RegisterOutcome.WAITING
    assert register(table, broker(address="third:1")) is RegisterOutcome.FULL


def test_heartbeat_of_a_waiting_broker_counts(table: RouteTable) -> None:
    register(table, broker())
    table.register(copy(), "other", 0)
    table.touch(KEY, 100_000)
    table.touch(COPY, 100_000)
    assert table.expire(130_000) == []


@pytest.mark.parametrize("name", ["broker-a", "broker-b"])
def test_two_processes_with_one_address_are_found(table: RouteTable, name: str) -> None:
    one, two = object(), object()
    other = replace(broker(name), address=KEY.address)
    assert table.register(broker(), one, 0).rival == ""
    assert table.register(other, two, 1).rival == "", "a restart looks alike"
    assert table.register(other, two, 2).rival == ""
    assert table.register(broker(), one, 3).rival == KEY.address
    assert table.register(other, two, 4).rival == KEY.address
    table.connection_closed(two)
    assert table.register(broker(), one, 5).rival == ""
