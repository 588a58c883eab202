"""Entry to the operations: address, account, and each operation as a method."""

import inspect
import pickle
from typing import Any

import pytest

import rocketpy.admin
from rocketpy.admin import Admin, clusters, groups, key_values, messages, offsets, topics
from rocketpy.admin.offsets import ResetTarget
from rocketpy.client.credentials import Credentials
from rocketpy.errors import ClientError, ConfigError, NoNameServerError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import make_request
from tests.unit.admin.fakes import BROKERS, FakeRemoting

A = BROKERS["broker-a"]
MODULES = (clusters, groups, key_values, messages, offsets, topics)


async def test_any_request_can_be_sent_and_closing_closes(
    admin: Admin, remoting: FakeRemoting
) -> None:
    async with admin:
        response = await admin.invoke(A, make_request(12345))
        assert response.code == 3
    assert remoting.closed


async def test_connect_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with rocketpy.admin.connect() as nowhere:
        with pytest.raises(NoNameServerError, match="set NAMESRV_ADDR"):
            await nowhere.cluster_info()
        with pytest.raises(ClientError, match="set NAMESRV_ADDR"):
            await nowhere.kv_put("n", "k", "v")


def test_every_operation_is_a_method_with_its_own_text_and_parameters() -> None:
    for module in MODULES:
        for name, function in vars(module).items():
            is_operation = inspect.iscoroutinefunction(function) and not name.startswith("_")
            if not is_operation or function.__module__ != module.__name__:
                continue
            method = getattr(Admin, name)
            assert method.__doc__ == function.__doc__, name
            assert method.__wrapped__ is function, name


async def test_operation_gets_what_it_was_called_with(admin: Admin, remoting: FakeRemoting) -> None:
    await admin.topic_route("t")
    await admin.topic_route(topic="u")
    asked = [request for _, request in remoting.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)]
    assert [request.ext_fields["topic"] for request in asked] == ["t", "u"]
    assert await admin.cluster_info() == await admin.servers.cluster_info()


async def test_account_signs_every_request() -> None:
    account = Credentials("user", "a secret")
    async with rocketpy.admin.connect("127.0.0.1:1", credentials=account) as admin:
        command = make_request(RequestCode.GET_BROKER_CLUSTER_INFO)
        for hook in admin.servers._remoting.hooks:
            hook.before_request("127.0.0.1:1", command)
    assert command.ext_fields["AccessKey"] == "user"
    assert command.ext_fields["Signature"]


async def test_account_of_the_environment_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETPY_ACCESS_KEY", "user")
    monkeypatch.setenv("ROCKETPY_SECRET_KEY", "a secret")
    async with rocketpy.admin.connect("127.0.0.1:1") as admin:
        assert len(admin.servers._remoting.hooks) == 1
    for name in ("ROCKETPY_ACCESS_KEY", "ROCKETPY_SECRET_KEY"):
        monkeypatch.delenv(name)
    async with rocketpy.admin.connect("127.0.0.1:1") as admin:
        assert admin.servers._remoting.hooks == []


async def test_name_servers_of_the_environment_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    async with rocketpy.admin.connect() as admin:
        with pytest.raises(NoNameServerError, match=r"127\.0\.0\.1:1"):
            await admin.cluster_info()


def test_half_an_account_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETPY_ACCESS_KEY", "user")
    monkeypatch.delenv("ROCKETPY_SECRET_KEY", raising=False)
    with pytest.raises(ConfigError):
        rocketpy.admin.connect("127.0.0.1:1")


async def test_awaited_admin_is_usable_and_closes_twice() -> None:
    admin = await rocketpy.admin.connect("127.0.0.1:1")
    async with admin as same:
        assert same is admin
    await admin.close()


def test_admin_without_asyncio_names_it() -> None:
    with pytest.raises(ClientError, match="RocketPy needs asyncio"):
        rocketpy.admin.connect("127.0.0.1:1").__aenter__().send(None)  # as trio would


def test_admin_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="Admin cannot be pickled or copied"):
        pickle.dumps(rocketpy.admin.connect("127.0.0.1:1"))


OPERATIONS = [name for name, each in vars(Admin).items() if hasattr(each, "__wrapped__")]


@pytest.mark.parametrize("name", OPERATIONS)
async def test_argument_of_another_type_is_refused_before_any_request(
    name: str, admin: Admin, remoting: FakeRemoting
) -> None:
    operation = getattr(admin, name)
    for parameter, declared in inspect.signature(operation).parameters.items():
        if declared.annotation is ResetTarget:  # `reset_offset` checks it
            continue
        for wrong in (object(), b"text", 1.5, ["t"]):
            with pytest.raises(TypeError, match=rf"^{name}\(\): {parameter}: .* is not "):
                await operation(**{parameter: wrong})
    assert remoting.asked == []


@pytest.mark.parametrize(
    ("name", "args", "options", "words"),
    [
        ("topic_route", (5,), {}, "topic_route(): topic: 5 is not a text"),
        ("group_lag", (None,), {}, "group: None is not a text"),
        ("create_topic", ("t", "4"), {}, "queues: '4' is not a whole number"),
        ("create_topic", ("t", True), {}, "queues: True is not a whole number"),
        ("create_topic", ("t",), {"order": "no"}, "order: 'no' is not True or False"),
        ("update_group", ("g",), {"consume": "no"}, "consume: 'no' is not True or False or None"),
        ("kv_put", ("n", "k", 5), {}, "value: 5 is not a text"),
        ("running_info", ("g", 5), {}, "client_id: 5 is not a text"),
        ("update_broker_config", (A, {"logLevel": 5}), {}, "a mapping from a text to a text"),
        ("set_offsets", ("g", {("t", "b", 0): 5}), {}, "is not a mapping from a MessageQueue to"),
        ("message_at", (("t", "b", 0), 5), {}, "queue: ('t', 'b', 0) is not a MessageQueue"),
        ("invoke", (A, 105), {}, "command: 105 is not a RemotingCommand"),
    ],
)
async def test_argument_of_another_type_is_named(
    name: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
    words: str,
    admin: Admin,
    remoting: FakeRemoting,
) -> None:
    with pytest.raises(TypeError) as caught:
        await getattr(admin, name)(*args, **options)
    assert words in str(caught.value)
    assert remoting.asked == []


@pytest.mark.parametrize("count", [0, -3])
async def test_count_below_one_is_refused_before_any_request(
    count: int, admin: Admin, remoting: FakeRemoting
) -> None:
    for call in (
        admin.dead_letters("g", max_count=count),
        admin.messages_by_key("t", "k", max_count=count),
        admin.trace("id", max_count=count),
        admin.peek("t", max_count=count),
    ):
        with pytest.raises(ValueError, match=f"max_count is {count}, not 1 or more"):
            await call
    assert remoting.asked == []


async def test_negative_offset_is_not_stored(admin: Admin, remoting: FakeRemoting) -> None:
    offsets = {MessageQueue("t", "broker-a", number): 5 - 6 * number for number in range(2)}
    with pytest.raises(ValueError, match=r"queue_id=1.* is -1, not 0 or more"):
        await admin.set_offsets("g", offsets)
    assert remoting.asked == []


async def test_missing_or_unknown_argument_is_an_error_of_the_call(admin: Admin) -> None:
    operation: Any = admin.topic_route
    for args, options in (((), {}), (("t", "u"), {}), (("t",), {"name": "t"})):
        with pytest.raises(TypeError, match="argument"):
            await operation(*args, **options)


class Whole:
    """Number of another library, such as numpy's."""

    def __index__(self) -> int:
        return 7


async def test_whole_number_of_another_library_is_an_int(
    admin: Admin, remoting: FakeRemoting
) -> None:
    any_admin: Any = admin
    queue = MessageQueue("t", "broker-a", 0)
    remoting.response(RequestCode.UPDATE_CONSUMER_OFFSET)
    await any_admin.set_offsets("g", {queue: Whole()}, {"broker-a": A})
    [(_, request)] = remoting.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert request.ext_fields["commitOffset"] == "7"


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": "5"},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": None},
        {"name_servers": ("127.0.0.1", 9876)},
        {"name_servers": b"a:1"},
        {"credentials": ("user", "secret")},
        {"remoting": {"tls": True}},
        {"clock": 5},
    ],
    ids=repr,
)
def test_option_of_another_type_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        rocketpy.admin.connect(**options)
    assert [caught.value.key] == list(options)
    assert "secret" not in str(caught.value)
