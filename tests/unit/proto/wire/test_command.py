import pytest

from rocketpy.proto.wire.codes import RPC_VERSION, LanguageCode, RequestCode, ResponseCode
from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    encode_head,
    make_request,
    make_response,
)
from rocketpy.proto.wire.frame import decode_command


def test_request():
    request = make_request(RequestCode.GET_MAX_OFFSET, {"topic": "T"}, b"b")
    assert type(request.code) is int
    assert (request.opaque, request.flag, request.remark) == (0, 0, None)
    assert (request.language, request.version) == (LanguageCode.PYTHON, RPC_VERSION)
    assert not request.is_response
    assert not request.is_oneway


@pytest.mark.parametrize("oneway", [False, True])
def test_oneway_request(oneway):
    request = decode_command(encode_command(make_request(15, oneway=oneway)))
    assert (request.is_oneway, request.is_response) == (oneway, False)
    assert request.flag == (2 if oneway else 0), "bit 1; bit 0 is a response's"


@pytest.mark.parametrize("serialize_type", [0, 1, 2])
def test_response_mirrors_its_request(serialize_type):
    request = make_request(10)
    request.opaque, request.serialize_type = -7, serialize_type
    response = make_response(request, ResponseCode.TOPIC_NOT_EXIST, "no", {"a": "b"}, b"x")
    assert response.is_response
    assert (response.opaque, response.serialize_type) == (-7, serialize_type)
    assert decode_command(encode_command(response)) == response


def test_empty_parts_are_not_shared():
    one, two = make_request(1), make_request(1)
    one.ext_fields["a"] = "b"
    assert two.ext_fields == {}
    assert make_response(one).ext_fields == {}


def test_head_leaves_room_for_its_body():
    response = make_response(make_request(11))
    head = encode_head(response, 5)
    response.body = b"12345"
    assert head + b"12345" == encode_command(response)


def test_equality_and_repr():
    one = RemotingCommand(1, 0, 0, 5, 1, "r", {})
    assert one == RemotingCommand(1, 0, 0, 5, 1, "r", {})
    assert one != RemotingCommand(2, 0, 0, 5, 1, "r", {})
    assert one != "something else"
    assert "response code=1 opaque=5" in repr(one)
    assert "oneway" in repr(make_request(1, oneway=True))
    assert repr(make_request(1)).startswith("<request")
    with pytest.raises(TypeError):
        hash(one)


def test_json_header_is_what_java_writes():
    request = RemotingCommand(105, 0, 493, 7, 0, None, {"topic": "T"})
    assert encode_command(request)[8:] == (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA",'
        b'"opaque":7,"serializeTypeCurrentRPC":"JSON","version":493}'
    )
