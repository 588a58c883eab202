"""A replica follows the controllers of one state."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketpy.broker.failover.known_controller import ControllerMark, KnownController
from rocketpy.errors import ConfigError, StoreFormatError
from rocketpy.store.replication.epoch_file import STATE_FILE
from rocketpy.testing.sim_files import SimFiles

ROOT = Path("/store")
ONE, TWO = ControllerMark("1" * 32), ControllerMark("2" * 32)
SHARED = ControllerMark("3" * 32, is_shared=True)
APACHE = ControllerMark()


def known(state_id: str = "", files: SimFiles | None = None) -> KnownController:
    made = KnownController(ROOT, files or SimFiles())
    made.remember(state_id)
    return made


def test_known_controller_remembers_the_first_state_durably() -> None:
    files = SimFiles()
    made = known(ONE.state_id, files)
    made.remember(TWO.state_id)
    again = KnownController(ROOT, files)
    again.load()
    assert made.state_id == again.state_id == ONE.state_id


def test_known_controller_without_space_belongs_to_the_state_nevertheless() -> None:
    files = SimFiles()
    files.capacity_bytes = 0
    assert known(ONE.state_id, files).state_id == ONE.state_id


def test_known_controller_with_a_damaged_file_is_refused() -> None:
    files = SimFiles()
    known(ONE.state_id, files)
    files.write_bytes(ROOT / STATE_FILE, b"\xff")
    with pytest.raises(StoreFormatError, match="is not the id of a state"):
        KnownController(ROOT, files).load()


def test_known_controller_ignores_and_logs_another_state_once() -> None:
    made = known(ONE.state_id)
    with capture_logs() as logs:
        for _ in range(2):
            assert made.followed({"a:1": ONE, "b:1": TWO}, ()) == {"a:1"}
    assert [(each["log_level"], each["controller"]) for each in logs] == [("error", "b:1")]
    assert made.problem == ""


def test_known_controller_refuses_another_state_alone_and_says_what_to_do() -> None:
    made = known(ONE.state_id)
    with pytest.raises(ConfigError, match=r"name one controller.*remove brokerIdentity"):
        made.followed({"b:1": TWO}, ["a:1"])
    assert made.problem.startswith("b:1: this replica has its id from")
    assert made.followed({"a:1": ONE}, ["b:1"]) == {"a:1"}
    assert made.problem == ""


@pytest.mark.parametrize(
    ("answers", "silent"),
    [
        ({"a:1": ONE, "b:1": TWO}, []),
        ({"a:1": ONE, "b:1": SHARED}, []),
        ({"a:1": ONE}, ["b:1"]),  # it may have another state, with replicas
    ],
    ids=["two states", "local and shared", "one is silent"],
)
def test_known_controller_of_a_new_replica_chooses_between_no_states(
    answers: dict[str, ControllerMark], silent: list[str]
) -> None:
    made = known()
    with pytest.raises(ConfigError, match="controllerStorage=etcd"):
        made.followed(answers, silent)
    assert made.problem


@pytest.mark.parametrize(
    ("answers", "silent"),
    [
        ({"a:1": ONE}, []),
        ({"a:1": ONE, "b:1": ONE}, []),  # two addresses of one controller
        ({"a:1": SHARED, "b:1": APACHE}, ["c:1"]),  # one that does not lead has no id
        ({"a:1": APACHE}, ["b:1"]),
    ],
    ids=["alone", "two addresses", "etcd", "apache"],
)
def test_known_controller_of_a_new_replica_follows_one_state(
    answers: dict[str, ControllerMark], silent: list[str]
) -> None:
    assert known().followed(answers, silent) == answers.keys()
