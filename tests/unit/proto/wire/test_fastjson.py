import pytest

from rocketpy.errors import BadBodyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire import fastjson

QUEUE = MessageQueue("T", "b", 0)
QUEUE_TEXT = b'{"brokerName":"b","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{0:"ip:1",1:"ip:2"}', {"0": "ip:1", "1": "ip:2"}),
        (b'{"0":"ip:1"}', {"0": "ip:1"}),
        (b"{-5:{7:8}}", {"-5": {"7": 8}}),
        (b"{" + QUEUE_TEXT + b":5}", {QUEUE: 5}),
        (b'{{"a":1}:5}', {'{"a":1}': 5}),
        (b"{{0:1}:5}", {'{"0":1}': 5}),
        (
            b'{ 0 : [ 1 , -2.5e1 , true , false , null , "\\u00e9\\n" ] }',
            {"0": [1, -25.0, True, False, None, "é\n"]},
        ),
        (b"{0:{},1:[]}", {"0": {}, "1": []}),
        (b"null", None),
    ],
)
def test_reads_what_java_writes(data, value):
    assert fastjson.loads(data) == value


def test_reads_apaches_pretty_files():
    data = b'{\n\t"dataVersion":{\n\t\t"counter":1\n\t},'
    data += b'\n\t"offsetTable":{\n\t\t"T@g":{0:3,1:4\n\t\t}\n\t}\n}'
    assert fastjson.loads(data) == {
        "dataVersion": {"counter": 1},
        "offsetTable": {"T@g": {"0": 3, "1": 4}},
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[",
        b"{0}",
        b"{0:",
        b"{0:1",
        b"{0:1,",
        b"{0:1,}",
        b"[1,]",
        b"{:1}",
        b"{a:1}",
        b"{0:1}x",
        b'{0:"a}',
        b'{0:"\\x"}',
        b'{0:"\\ud800"}',
        b"{0:tru}",
        b"{0:01a}",
        b"{0:" + b"9" * 500 + b"}",
        b"\xff",
        b"{0 1}",
        b"{{0:1}5}",
        b"{[1]:2}",
    ],
)
def test_loads_invalid_json_raises(data):
    with pytest.raises(BadBodyError):
        fastjson.loads(data)


def test_depth_is_bounded():
    def nested(depth: int) -> bytes:
        return b"{0:" * depth + b"1" + b"}" * depth

    assert fastjson.loads(nested(fastjson.MAX_DEPTH))
    for data in (nested(fastjson.MAX_DEPTH + 1), nested(100_000), b"{" * 100_000, b"[" * 100_000):
        with pytest.raises(BadBodyError):
            fastjson.loads(data)


def test_writes_queues_as_raw_keys_and_integers_quoted():
    value = {"t": {QUEUE: {0: [QUEUE]}}, "s": {1}, "x": None}
    expected = b'{"t":{' + QUEUE_TEXT + b':{"0":[' + QUEUE_TEXT + b']}},"s":[1],"x":null}'
    assert fastjson.dumps(value) == expected
    assert fastjson.dumps({1: {2: True}}) == b'{"1":{"2":true}}'


def test_writes_integer_keys_raw_when_asked():
    value = {"T@g": {0: 3}, "e": {}, "l": [], "t": (1, "é")}
    expected = '{"T@g":{0:3},"e":{},"l":[],"t":[1,"é"]}'.encode()
    assert fastjson.dumps(value, raw_int_keys=True) == expected


def test_queue_alone_is_its_object():
    assert fastjson.dumps(QUEUE) == fastjson.dumps(QUEUE, raw_int_keys=True) == QUEUE_TEXT


def test_values_json_does_not_know_are_a_type_error():
    with pytest.raises(TypeError):
        fastjson.dumps({"a": object()})


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        {"topic": "T", "brokerName": "b"},
        {"topic": "T", "brokerName": "b", "queueId": True},
    ],
)
def test_to_message_queue_of_other_objects_is_none(value):
    assert fastjson.to_message_queue(value) is None


def test_plain_json_only():
    assert fastjson.loads_plain(b'{"a":[1]}') == {"a": [1]}
    with pytest.raises(BadBodyError):
        fastjson.loads_plain(b"{1:2}")


def test_loads_long_text_of_the_dialect_raises():
    fastjson.check_quick(b"{1:2}")
    fastjson.check_quick(b"[" + b"0," * fastjson.MAX_DIALECT_BYTES + b"0]")
    with pytest.raises(BadBodyError):
        fastjson.check_quick(b"{1:[" + b"0," * fastjson.MAX_DIALECT_BYTES + b"0]}")
