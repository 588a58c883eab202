"""What clients tell brokers of themselves."""

from rocketpy.proto.bodies.heartbeat import (
    CONSUME_PASSIVELY,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    ProducerInfo,
)


def test_a_heartbeat_goes_under_javas_names():
    data = HeartbeatData("c", [ProducerData("P")], [ConsumerData("G", CONSUME_PASSIVELY)])
    assert data.encode() == (
        b'{"clientID":"c","consumerDataSet":[{"consumeType":"CONSUME_PASSIVELY","groupName":"G",'
        b'"subscriptionDataSet":[],"unitMode":false}],"heartbeatFingerprint":0,'
        b'"producerDataSet":[{"groupName":"P"}],"withoutSub":false}'
    )


def test_go_writes_null_for_an_empty_list():
    text = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":null}],'
    data = HeartbeatData.decode(text + b'"producerDataSet":null}')
    assert data == HeartbeatData("c", [], [ConsumerData("G")])


def test_an_address_goes_under_a_name_of_its_own():
    assert b'"remoteIP":"/1.1.1.1:1"' in ProducerInfo("c", "/1.1.1.1:1").encode()
