"""Samples of bodies from Java's encoder (5.4.0) and from old peers."""

import pytest

from rocketpy.errors import BadBodyError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.heartbeat import ConsumerConnection, HeartbeatData
from rocketpy.proto.bodies.lock import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from rocketpy.proto.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from rocketpy.proto.bodies.register import RegisterBrokerBody
from rocketpy.proto.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketpy.proto.bodies.running import ConsumerRunningInfo
from rocketpy.proto.bodies.stats import ConsumeStats
from rocketpy.proto.bodies.topic import (
    TopicStatsTable,
)
from rocketpy.proto.message_queue import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 1)
QUEUE_TEXT = b'{"brokerName":"broker-a","queueId":1,"topic":"T"}'

JAVA_SAMPLES = [
    (
        TopicRouteData,
        (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"1.1.1.1:10911","1":"1.1.1.2:10911"},"broker'
            b'Name":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filter'
            b'ServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":'
            b'4,"topicSysFlag":0,"writeQueueNums":4}]}'
        ),
    ),
    (
        ClusterInfo,
        (
            b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"1.1.1.1:10911"},"brokerName":"'
            b'broker-a","cluster":"c","enableActingMaster":false}},"clusterAddrTable":{"c":["b'
            b'roker-a"]}}'
        ),
    ),
    (
        RegisterBrokerBody,
        (
            b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0'
            b',"stateVersion":0,"timestamp":1795250495251},"mappingDataVersion":{"counter":0,"'
            b'stateVersion":0,"timestamp":1795250495251},"topicConfigTable":{"T":{"attributes"'
            b':{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","top'
            b'icName":"T","topicSysFlag":0,"writeQueueNums":4}},"topicQueueMappingDetailMap":{'
            b'},"topicQueueMappingInfoMap":{}}}'
        ),
    ),
    (
        HeartbeatData,
        (
            b'{"clientID":"1.1.1.1@1#2","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_L'
            b'AST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG","messageModel":"C'
            b'LUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[65,66],"ex'
            b'pressionType":"TAG","subString":"A || B","subVersion":1795250494910,"tagsSet":["'
            b'A","B"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataS'
            b'et":[{"groupName":"PG"}],"withoutSub":false}'
        ),
    ),
    (
        TopicStatsTable,
        (
            b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"lastUpdateTimestamp'
            b'":2,"maxOffset":1,"minOffset":0}},"topicPutTps":0.0}'
        ),
    ),
    (
        ConsumerConnection,
        (
            b'{"connectionSet":[{"clientAddr":"1.1.1.1:5000","clientId":"x","language":"PYTHON'
            b'","version":493}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"C'
            b'ONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{}}'
        ),
    ),
    (
        ConsumeStats,
        (
            b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"br'
            b'okerOffset":0,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}'
        ),
    ),
    (
        SubscriptionGroupConfig,
        (
            b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true'
            b',"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute'
            b'":15,"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"'
            b'notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whic'
            b'hBrokerWhenConsumeSlowly":1}'
        ),
    ),
    (
        LockBatchRequestBody,
        (
            b'{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"broker-a","queueId":'
            b'1,"topic":"T"}],"onlyThisBroker":false}'
        ),
    ),
    (
        LockBatchResponseBody,
        (b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":1,"topic":"T"}]}'),
    ),
    (
        QueryAssignmentRequestBody,
        (
            b'{"clientId":"c","consumerGroup":"g","messageModel":"CLUSTERING","strategyName":"'
            b'AVG","topic":"T"}'
        ),
    ),
    (
        QueryAssignmentResponseBody,
        (
            b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"broker-a","queueId":-'
            b'1,"topic":"T"},"mode":"POP"}]}'
        ),
    ),
    (
        ConsumerOffsetSerializeWrapper,
        (b'{"offsetTable":{"T@g":{0:3,1:4}}}'),
    ),
    (
        ResetOffsetBody,
        (b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:5}}'),
    ),
    (
        GetConsumerStatusBody,
        (
            b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":1,"t'
            b'opic":"T"}:5}}'
        ),
    ),
    (
        ConsumerRunningInfo,
        (
            b'{"mqPopTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:{"droped":false'
            b',"lastPopTimestamp":0,"waitAckCount":0}},"mqTable":{{"brokerName":"broker-a","qu'
            b'eueId":1,"topic":"T"}:{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOf'
            b'fset":0,"cachedMsgSizeInMiB":0,"commitOffset":0,"droped":false,"lastConsumeTimes'
            b'tamp":0,"lastLockTimestamp":0,"lastPullTimestamp":0,"locked":false,"transactionM'
            b'sgCount":0,"transactionMsgMaxOffset":0,"transactionMsgMinOffset":0,"tryUnlockTim'
            b'es":0}},"properties":{},"statusTable":{"T":{"consumeFailedMsgs":0,"consumeFailed'
            b'TPS":0.0,"consumeOKTPS":0.0,"consumeRT":0.0,"pullRT":0.0,"pullTPS":0.0}},"subscr'
            b'iptionSet":[],"userConsumerInfo":{}}'
        ),
    ),
]


@pytest.mark.parametrize(
    ("cls", "text"), JAVA_SAMPLES, ids=[cls.__name__ for cls, _ in JAVA_SAMPLES]
)
def test_samples_of_java(cls, text):
    decoded = cls.decode(text)
    assert decoded != cls()
    quoted = text.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')
    assert decoded.encode() == quoted
    assert cls.decode(quoted) == decoded


def test_route():
    route = TopicRouteData.decode(JAVA_SAMPLES[0][1])
    assert route.broker_datas[0].master_addr == "1.1.1.1:10911"
    assert route.broker_datas[0].broker_addrs[1] == "1.1.1.2:10911"
    assert route.queue_datas == [QueueData("broker-a", 4, 4, 6, 0)]
    raw = b'{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"b"}],"orderTopicConf":"b:4"}'
    old = TopicRouteData.decode(raw)
    assert old.broker_datas[0].broker_addrs == {0: "a:1"}
    assert old.order_topic_conf == "b:4"
    assert BrokerData().master_addr is None


ESCAPED = QUEUE_TEXT.replace(b'"', b'\\"')


@pytest.mark.parametrize(
    "text",
    [
        b'{"offsetTable":{' + QUEUE_TEXT + b":5}}",
        b'{"offsetTable":[{"brokerName":"broker-a","offset":5,"queueId":1,"topic":"T"}]}',
        b'{"offsetTable":{"' + ESCAPED + b'":5}}',
    ],
)
def test_reset_offsets_in_every_form(text):
    reset = ResetOffsetBody.decode(text)
    assert reset.offset_table == {QUEUE: 5}
    assert ResetOffsetBody.decode(reset.encode_list()) == reset


@pytest.mark.parametrize(
    "text",
    [
        b'{"offsetTable":[5]}',
        b'{"offsetTable":[{"topic":"T"}]}',
        b'{"offsetTable":{"x":5}}',
        b'{"offsetTable":{' + QUEUE_TEXT + b':"x"}}',
        b'{"offsetTable":5}',
        b"[]",
        b"5",
        b"",
        b"x",
    ],
)
def test_reset_offsets_that_are_wrong(text):
    with pytest.raises(BadBodyError):
        ResetOffsetBody.decode(text)
