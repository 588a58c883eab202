"""Headers between brokers, clients and the name server."""

from rocketpy.proto.headers.namesrv import (
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)


def test_registration():
    register = RegisterBrokerRequestHeader.from_ext(
        {
            "brokerName": "b",
            "brokerAddr": "a",
            "clusterName": "c",
            "haServerAddr": "h",
            "brokerId": "0",
        }
    )
    assert (register.compressed, register.body_crc32, register.heartbeat_timeout_millis) == (
        False,
        None,
        None,
    )
    assert register.zone_name is None


def test_zone_goes_under_the_name_that_a_hook_gives_it():
    fields = {
        "brokerName": "b",
        "brokerAddr": "a",
        "clusterName": "c",
        "haServerAddr": "h",
        "brokerId": "0",
        "__ZONE_NAME": "z",
    }
    assert RegisterBrokerRequestHeader.from_ext(fields).zone_name == "z"


def test_response_leaves_out_what_it_does_not_know():
    assert RegisterBrokerResponseHeader().to_ext() == {}
    assert RegisterBrokerResponseHeader(master_addr="a:1").to_ext() == {"masterAddr": "a:1"}
    assert QueryDataVersionResponseHeader(changed=False).to_ext() == {"changed": "false"}
