"""Heartbeats and connections of clients."""

from rocketpy.proto.bodies.heartbeat import (
    CONSUME_PASSIVELY,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    ProducerInfo,
)


def test_heartbeat_encode_uses_javas_names():
    data = HeartbeatData("c", [ProducerData("P")], [ConsumerData("G", CONSUME_PASSIVELY)])
    assert data.encode() == (
        b'{"clientID":"c","consumerDataSet":[{"consumeType":"CONSUME_PASSIVELY","groupName":"G",'
        b'"subscriptionDataSet":[],"unitMode":false}],"heartbeatFingerprint":0,'
        b'"producerDataSet":[{"groupName":"P"}],"withoutSub":false}'
    )


def test_heartbeat_decode_accepts_null_lists_of_go():
    text = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":null}],'
    data = HeartbeatData.decode(text + b'"producerDataSet":null}')
    assert data == HeartbeatData("c", [], [ConsumerData("G")])


def test_connection_client_address_has_its_wire_name():
    assert b'"remoteIP":"/1.1.1.1:1"' in ProducerInfo("c", "/1.1.1.1:1").encode()
