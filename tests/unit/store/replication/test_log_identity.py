"""Identity of a log: made by a master, adopted by a slave, replaced with a lost log."""

from dataclasses import replace
from pathlib import Path

import pytest

from rocketpy.store.message_store import MessageStore
from tests.unit.store.store_kit import Kit, put_many

FILE = Path("/store/config/logIdentity.json")


def test_log_identity_of_master_is_made_once() -> None:
    kit = Kit()
    store = kit.open()
    made = store.log_identity
    assert len(made) == 32
    put_many(store, 1)
    store.close()
    assert kit.open().log_identity == made
    assert made.encode() in kit.files.read_bytes(FILE)


def test_log_identity_of_slave_is_that_of_its_master() -> None:
    kit = Kit(broker_role="SLAVE")
    store = kit.open()
    assert store.log_identity == ""
    store.adopt_log_identity("a1")
    assert store.log_identity == "a1"
    store.close()
    assert kit.open().log_identity == "a1"


@pytest.mark.parametrize("text", ["", "x" * 129, "a\nb", "\xe9"])
def test_log_identity_from_network_is_checked(text: str) -> None:
    store = Kit(broker_role="SLAVE").open()
    with pytest.raises(ValueError, match="is not the identity of a log"):
        store.adopt_log_identity(text)
    assert store.log_identity == ""


def test_log_identity_of_empty_log_in_place_of_lost_one_is_new() -> None:
    kit = Kit()
    store = kit.open()
    made = store.log_identity
    put_many(store, 3)
    store.close()
    kit.files.remove_tree(Path("/store/commitlog"))
    again = MessageStore(kit.config, clock=kit.clock, files=kit.files)
    again.open(start_empty=True)
    assert again.log_identity not in {"", made}


@pytest.mark.parametrize("has_controller", [True, False])
def test_log_identity_of_a_copy_without_one_is_not_made_with_a_controller(
    has_controller: bool,
) -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 3)
    store.close()
    kit.files.remove(FILE)
    kit.files.remove(FILE.with_name(FILE.name + ".bak"))
    again = MessageStore(kit.config, clock=kit.clock, files=kit.files)
    again.open(has_controller=has_controller)
    assert bool(again.log_identity) is not has_controller


@pytest.mark.parametrize("has_controller", [True, False])
def test_log_identity_of_an_elected_replica_without_messages_stays_with_a_controller(
    has_controller: bool,
) -> None:
    """A second identity would separate the first master, whose messages no replica has."""
    kit = Kit(broker_role="SLAVE")
    store = kit.open()
    store.adopt_log_identity("a1")
    store.close()
    elected = MessageStore(
        replace(kit.config, broker_role="SYNC_MASTER"), clock=kit.clock, files=kit.files
    )
    elected.open(has_controller=has_controller)
    assert (elected.log_identity == "a1") is has_controller


def test_log_identity_without_space_leaves_store_usable() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 3)
    store.close()
    kit.files.remove(FILE)
    kit.files.remove(FILE.with_name(FILE.name + ".bak"))
    kit.files.capacity_bytes = kit.files.used_bytes + 4_096  # for the abort file
    store = kit.open()
    assert store.log_identity == ""
    kit.files.capacity_bytes = None
    put_many(store, 1)
    store.close()
    assert kit.open().log_identity
