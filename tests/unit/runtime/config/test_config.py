import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from rocketpy.controller.config import ControllerConfig
from rocketpy.errors import ConfigError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.runtime.config.config import ConfigSet, Sources, camel_case, load, option, options_of
from rocketpy.store.config import MessageStoreConfig


class FlushDiskType(enum.Enum):
    ASYNC_FLUSH = 1
    SYNC_FLUSH = 2


class TlsMode(enum.Enum):
    OFF = "disabled"
    ON = "enforcing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    listen_port: int = option(10911, minimum=0, maximum=65_535)
    tls_mode: TlsMode = TlsMode.OFF
    key_password: str = ""

    def __post_init__(self) -> None:
        if self.listen_port == 13:
            raise ConfigError("is unlucky", key="listen_port")


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    broker_name: str = "broker-a"
    broker_ip1: str = option("", key="brokerIP1")
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    ratio: float = option(0.75, minimum=0.1, maximum=0.95)
    long_polling_enable: bool = option(True, live=True)
    wait_time_mills_in_send_queue: int = option(
        200, live=True, minimum=0, maximum=60_000, unit="ms"
    )
    levels: tuple[str, ...] = option(("1s", "5s"), separator=" ")
    peers: tuple[int, ...] = ()
    limit: int | None = None
    mode: Literal["PULL", "POP"] = "PULL"
    directory: Path = Path("store")
    net: Net = field(default_factory=lambda: Net(listen_port=9876))


def load_text(text: str, *overrides: str, **environ: str) -> ConfigSet:
    return load(Sources(text=text, name="b.conf", environ=environ, overrides=overrides), [Broker])


def test_names_become_keys() -> None:
    assert camel_case("wait_time_mills_in_send_queue") == "waitTimeMillsInSendQueue"
    assert camel_case("d_leger_group") == "dLegerGroup"
    assert [each.key for each in options_of(Broker)][:2] == ["brokerName", "brokerIP1"]


def test_every_type_is_read() -> None:
    broker = load_text(
        """
        brokerName = b2
        brokerIP1=10.0.0.1
        flushDiskType=SYNC_FLUSH
        ratio=0.5
        longPollingEnable=FALSE
        waitTimeMillsInSendQueue=1000
        levels=1s  2s 3s
        peers=1;2; 3
        limit=7
        mode=POP
        directory=/data
        listenPort=1
        tlsMode=enforcing
        """
    ).get(Broker)
    assert broker == Broker(
        broker_name="b2",
        broker_ip1="10.0.0.1",
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        ratio=0.5,
        long_polling_enable=False,
        wait_time_mills_in_send_queue=1000,
        levels=("1s", "2s", "3s"),
        peers=(1, 2, 3),
        limit=7,
        mode="POP",
        directory=Path("/data"),
        net=Net(listen_port=1, tls_mode=TlsMode.ON),
    )


def test_without_settings_everything_is_default_and_a_group_keeps_its_own() -> None:
    loaded = load_text("")
    assert loaded.get(Broker) == Broker()
    assert loaded.get(Broker).net.listen_port == 9876
    assert loaded.non_defaults() == {}
    assert loaded.warnings == ()
    assert load_text("tlsMode=enforcing").get(Broker).net.listen_port == 9876


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("waitTimeMillsInSendQueue=many", "'many' is not allowed here; expected a whole number"),
        ("waitTimeMillsInSendQueue=-1", "from 0 to 60000 ms"),
        ("waitTimeMillsInSendQueue=1e3", "a whole number"),
        ("waitTimeMillsInSendQueue=99999999999999999999", "a whole number"),
        ("waitTimeMillsInSendQueue=", "a whole number"),
        ("ratio=nan", "a number from 0.1 to 0.95"),
        ("ratio=2", "a number"),
        ("longPollingEnable=yes", "true or false"),
        ("flushDiskType=sync", "one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("tlsMode=maybe", "one of disabled, enforcing"),
        ("mode=PUSH", "one of PULL, POP"),
        ("peers=1;x", "a list of"),
        ("listenPort=65536", "from 0 to 65535"),
        ("listenPort=13", "is unlucky"),
    ],
)
def test_value_that_does_not_fit_names_file_line_and_key(line: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text("# one\n" + line)
    key = line.partition("=")[0]
    assert str(caught.value).startswith(f"b.conf:2: {key}: ")
    assert complaint in str(caught.value)


def test_value_of_a_line_that_a_later_line_replaces_is_not_checked_with_others() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text("listenPort=13\n\n\nlistenPort=\n")
    assert caught.value.all_errors == (
        "b.conf:4: listenPort: '' is not allowed here; expected a whole number from 0 to 65535",
    )


def test_rule_of_a_line_that_an_ignored_line_follows_names_the_first() -> None:
    sources = Sources(
        text="listenPort=13", name="b.conf", live_text="#\nlistenPort=14\n", live_name="l.conf"
    )
    with pytest.raises(ConfigError, match=r"^b\.conf:1: listenPort: is unlucky"):
        load(sources, [Net])


def test_stronger_sources_win() -> None:
    environ = {"ROCKETPY_LISTEN_PORT": "3", "OTHER": "x", "ROCKETPY_SOMETHING_ELSE": "1"}
    assert load_text("listenPort=1\nlistenPort=2").get(Broker).net.listen_port == 2
    assert load_text("listenPort=2", **environ).get(Broker).net.listen_port == 3
    loaded = load_text("listenPort=2", "listenPort=4", "listenPort = 5", **environ)
    assert loaded.get(Broker).net.listen_port == 5
    assert load_text("", ROCKETPY_listenPort="6").get(Broker).net.listen_port == 6
    assert load_text("", ROCKETPY_BROKERIP1="h").get(Broker).broker_ip1 == "h"


def test_errors_of_environment_and_command_line_say_so() -> None:
    with pytest.raises(ConfigError, match="environment ROCKETPY_LISTEN_PORT: listenPort"):
        load_text("", ROCKETPY_LISTEN_PORT="x")
    with pytest.raises(ConfigError, match="-D: listenPort: 'x'"):
        load_text("", "listenPort=x")
    with pytest.raises(ConfigError, match="expected key=value, not 'listenPort'"):
        load_text("", "listenPort")
    with pytest.raises(ConfigError, match=r"listenPrt: no such key; did you mean listenPort\?"):
        load_text("", "listenPrt=1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    threads: int = 0
    capacity: int = option(10, only_with="threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    pool: Pool = field(default_factory=Pool)


@pytest.mark.parametrize("config_class", [Pool, Server])
def test_key_without_effect_because_of_another_is_a_warning(config_class: type) -> None:
    alone = load(Sources(text="capacity = 5", name="b.conf"), [config_class])
    assert [str(one) for one in alone.warnings] == [
        "b.conf:1: capacity: has no effect while threads is 0"
    ]
    both = Sources(text="capacity = 5", name="b.conf", overrides=["threads=2"])
    assert load(both, [config_class]).warnings == ()
    assert load(Sources(defaults={"capacity": "5"}), [config_class]).warnings == ()


def test_unknown_and_unsupported_keys_are_different_warnings() -> None:
    loaded = load_text("brokerNam=x\nenableLmqStats=true\nzzzzzzz=1\ndebugLockEnable=true")
    assert [str(each) for each in loaded.warnings] == [
        "b.conf:1: brokerNam: unknown key, ignored; did you mean brokerName?",
        "b.conf:2: enableLmqStats: has no effect: light message queues are not supported",
        "b.conf:3: zzzzzzz: unknown key, ignored",
        "b.conf:4: debugLockEnable: has no effect: it tunes locks of the JVM",
    ]
    sources = Sources(text="elsewhereKey=1")
    assert load(sources, [Net], elsewhere=["elsewhereKey"]).warnings == ()


def test_one_text_fills_several_dataclasses() -> None:
    loaded = load(Sources(text="listenPort=5\nbrokerName=x"), [Broker, Net])
    assert loaded.get(Net).listen_port == 5
    assert loaded.get(Broker).net.listen_port == 5
    assert loaded.get(Broker).broker_name == "x"


def test_shown_values_are_sorted_and_hide_secrets() -> None:
    loaded = load_text("keyPassword=hunter2\nlevels=1s 2s\nlimit=\n")
    text = loaded.as_properties()
    lines = text.splitlines()
    assert lines == sorted(lines)
    assert "keyPassword=******" in lines
    assert "levels=1s 2s" in lines
    assert "limit=" in lines
    assert "flushDiskType=ASYNC_FLUSH" in lines
    assert "hunter2" not in text
    assert loaded.non_defaults() == {"keyPassword": "******", "levels": "1s 2s"}
    with pytest.raises(ConfigError) as caught:
        load_text("", "listenPort=1", ROCKETPY_KEY_PASSWORD="a", ROCKETPY_LISTEN_PORT="s3cr3t")
    assert "hunter2" not in str(caught.value)


def test_live_keys_change_and_others_do_not() -> None:
    before = load_text("")
    after = before.updated({"longPollingEnable": "false", "waitTimeMillsInSendQueue": "5"})
    assert after.get(Broker).long_polling_enable is False
    assert after.get(Broker).wait_time_mills_in_send_queue == 5
    assert before.get(Broker).long_polling_enable is True
    assert before.live_keys() == {"longPollingEnable", "waitTimeMillsInSendQueue"}
    with pytest.raises(
        ConfigError, match=r"brokerName: cannot be changed while running: .* restart"
    ):
        before.updated({"longPollingEnable": "false", "brokerName": "x"})
    assert before.updated({"brokerName": "x"}, live_only=False).get(Broker).broker_name == "x"
    assert before.updated({"listenPort": "1"}, live_only=False).get(Broker).net.listen_port == 1


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"longPollingEnabel": "true"}, "no such key; did you mean longPollingEnable?"),
        ({"waitTimeMillsInSendQueue": "60001"}, "from 0 to 60000 ms"),
        ({"waitTimeMillsInSendQueue": "1" * 5_000}, "too long"),
        ({"longPollingEnable": "tr\x00ue"}, "not printable"),
    ],
)
def test_bad_changes_name_the_key(changes: dict[str, str], complaint: str) -> None:
    (key,) = changes
    with pytest.raises(ConfigError) as caught:
        load_text("").updated(changes)
    assert caught.value.key == key
    assert complaint in str(caught.value)


def test_values_built_by_a_program_can_be_wrapped() -> None:
    wrapped = ConfigSet.of(Broker(broker_name="x"), Net())
    assert wrapped.get(Broker).broker_name == "x"
    assert wrapped.as_dict()["listenPort"] == "10911"


def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_text("brokerName=é\n", encoding="utf-8")
    assert load(Sources.from_file(path), [Broker]).get(Broker).broker_name == "é"
    assert load(Sources.from_file(None), [Broker]).get(Broker) == Broker()
    with pytest.raises(ConfigError, match="cannot read the configuration file"):
        Sources.from_file(tmp_path / "none.conf")


def test_file_that_is_not_utf_8_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_bytes(b"# f\xfcr Stra\xdfe 5\x85\r\nbrokerName=\xe9\r\nlistenPort=7\r\n")
    loaded = load(Sources.from_file(path), [Broker, Net])
    assert loaded.get(Broker).broker_name == "é"
    assert loaded.get(Net).listen_port == 7
    assert not loaded.warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    delay_level: str = "1s"

    def __post_init__(self) -> None:
        if "x" in self.delay_level:
            raise ValueError(f"delayLevel: {self.delay_level!r} is no delay")


def test_rule_of_the_dataclass_names_file_and_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load(Sources(text="# first\ndelayLevel=1x\n", name="b.conf"), [Delays])
    assert str(caught.value) == "b.conf:2: delayLevel: '1x' is no delay"


def test_key_given_twice_in_a_file_is_a_warning_about_the_earlier_line() -> None:
    loaded = load_text("brokerNam=x\n=5\nbrokerNam=y", brokerNam="z")
    assert [str(each) for each in loaded.warnings if "again" in str(each)] == [
        "b.conf:1: brokerNam: has no effect: line 3 gives this key again"
    ]
    assert "b.conf:2: =: a line without a key, ignored" in map(str, loaded.warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    root: str = option("store", path=True)
    backup: Path = Path("backup")
    secret_file: str = option("", path=True)
    about: str = ""


@pytest.mark.parametrize("key", ["root", "backup"])
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("~", "'~' begins with ~, which is not replaced here: write the whole path, such as"),
        ("~/store", "'~/store' begins with ~, which is not replaced here: write the whole"),
        ("${user.home}/s", "'${user.home}/s' contains ${, which is not replaced here: write"),
        ("one;two", "'one;two' contains ; but several paths are not supported: write one path"),
        ("$HOME/store", "'$HOME/store' begins with $, which is not replaced here: write the whole"),
        ('"/store"', "'\"/store\"' has quotes, which would be a part of the name: leave them out"),
        ("'/store'", "\"'/store'\" has quotes, which would be a part of the name"),
        ("/store  # ssd", "'/store  # ssd' contains a comment, which would be a part of the name"),
    ],
)
def test_path_that_a_shell_or_apache_would_replace_is_refused(
    key: str, text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Sources(text=f"{key}={text}", name="b.conf"), [Places])
    assert str(caught.value).startswith(f"b.conf:1: {key}: {complaint}")


@pytest.mark.parametrize(
    ("key", "config_class"),
    [
        ("storePathRootDir", MessageStoreConfig),
        ("controllerStorePath", ControllerConfig),
        ("dataDir", NamesrvConfig),
    ],
)
def test_list_for_one_directory_is_refused(key: str, config_class: type) -> None:
    with pytest.raises(ConfigError, match=f"b.conf:1: {key}: '/a,/b' contains , but several"):
        load(Sources(text=f"{key}=/a,/b", name="b.conf"), [config_class])


def test_name_of_a_file_may_have_a_comma() -> None:
    loaded = load(Sources(text="secretFile=/etc/CN=a,O=b.key", name="b.conf"), [Places])
    assert loaded.get(Places).secret_file == "/etc/CN=a,O=b.key"


def test_path_of_a_secret_is_refused_without_its_text() -> None:
    with pytest.raises(ConfigError) as caught:
        load(Sources(overrides=["secretFile=~/pair.key"]), [Places])
    assert str(caught.value).startswith(
        "-D: secretFile: ****** begins with ~, which is not replaced"
    )


def test_other_paths_and_other_texts_are_taken_as_they_are() -> None:
    text = "root=/data/a b~1$c\nbackup=C:\\\\data\\\\store\nabout=~;${x}"
    places = load(Sources(text=text), [Places]).get(Places)
    assert places == Places(root="/data/a b~1$c", backup=Path("C:\\data\\store"), about="~;${x}")
