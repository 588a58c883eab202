"""docs/COMPATIBILITY.md says of every request code what broker and name server do with it.

After a change of the processors: `python -m tests.docs.test_compatibility` writes the table anew.
"""

from pathlib import Path

from rocketpy.broker.admin.unsupported import UnsupportedAdmin
from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.clock import SystemClock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
BEGIN, END = "<!-- request codes -->\n", "<!-- end of request codes -->\n"


def broker_codes() -> tuple[set[int], set[int]]:
    """Request codes of the broker, and those that it always rejects."""
    clock = SimClock()
    broker = Broker(
        BrokerConfig(broker_name="b"),
        store_config=MessageStoreConfig(store_path_root_dir="/store"),
        clock=clock,
        files=SimFiles(clock),
    )
    unsupported = UnsupportedAdmin().processors()
    refused = {
        int(code)
        for code, processor in unsupported.items()
        if "_refusing" in getattr(processor, "__qualname__", "")
    }
    return set(broker.requests.routes), refused


def name_server_codes(directory: Path) -> set[int]:
    """Request codes of the name server."""
    config = NamesrvConfig(data_dir=str(directory), server=RemotingServerConfig())
    return set(NameServer(config, clock=SystemClock())._remoting._table.routes)


def table(directory: Path) -> str:
    """The table in Markdown; codes that both leave to their default are one line at the end."""
    answered, refused = broker_codes()
    known = name_server_codes(directory)
    lines = ["| code | name | broker | name server |", "|---|---|---|---|"]
    neither: list[str] = []
    for code in sorted(RequestCode):
        broker = "refused (1)" if code in refused else "answered" if code in answered else "3"
        namesrv = "answered" if code in known else "3"
        if broker == namesrv == "3":
            neither.append(f"{code.value} {code.name}")
        else:
            lines.append(f"| {code.value} | {code.name} | {broker} | {namesrv} |")
    return "\n".join([*lines, "", "Code 3 from both: " + ", ".join(neither) + ".", ""])


def test_every_request_code_is_listed_as_it_is_answered(tmp_path: Path) -> None:
    text = PAGE.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table(tmp_path)


def test_every_named_test_exists() -> None:
    words = PAGE.read_text().replace("`", " ").split()
    named = {word.strip(".,;:()|") for word in words if word.startswith("tests/")}
    assert len(named) > 10
    for name in named:
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), name
        assert not test or f"def {test}(" in (ROOT / path).read_text(), name


if __name__ == "__main__":
    found = PAGE.read_text()
    head, tail = found[: found.index(BEGIN) + len(BEGIN)], found[found.index(END) :]
    PAGE.write_text(head + table(Path("/nowhere")) + tail)
