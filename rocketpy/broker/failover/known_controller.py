"""State of a controller that a replica belongs to: answers of another one are refused.

Two controllers with local logs are independent: each would elect a different master. So a replica
follows the controller that gave it its broker id, and stores the id of that controller's state.
Apache's controllers have no such id, so their answers are not checked.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from rocketpy.errors import ConfigError, ResourceShortError
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.replication.epoch_file import STATE_FILE, read_state_id, write_state_id

_log = structlog.get_logger(__name__)

_MAX_LOGGED: Final = 100
"""Limit of remembered log lines: addresses and ids come from other machines."""
_KEY: Final = "controllerAddr"
_ONE_STATE: Final = (
    "name one controller, or several that share their state (controllerStorage=etcd)"
)


class ControllerMark(NamedTuple):
    """Part of a controller's answer about its state.

    Attributes:
        state_id: id of the state; empty at Apache's controllers, and at one that does not lead.
        is_shared: whether several controllers have it (etcd).
    """

    state_id: str = ""
    is_shared: bool = False


class KnownController:
    """State that one replica belongs to.

    Args:
        root: the store directory.
        files: the file system.

    Attributes:
        state_id: its id; empty: not known yet, so the first one that arrives is stored.
        problem: why no controller can be followed; empty if one can.
    """

    def __init__(self, root: Path, files: StoreFiles) -> None:
        self._root = root
        self._files = files
        self._logged: set[tuple[str, str]] = set()
        self.state_id: str = ""
        self.problem: str = ""

    def load(self) -> None:
        """Read the id of the state; not for a replica without a broker id, whose file is stale.

        Raises:
            StoreFormatError: the file is damaged.
            OSError: the disk failed.
        """
        self.state_id = read_state_id(self._root, self._files)

    def remember(self, state_id: str) -> None:
        """Store the id of the state if there is none yet; an empty id has no effect."""
        if self.state_id or not state_id:
            return
        self.state_id = state_id
        try:
            write_state_id(self._root, self._files, state_id)
        except (ResourceShortError, OSError) as error:
            # The next process stores the id of its first answer instead, as this one has done.
            _log.warning("id of the controller's state not written", error=str(error))

    def is_other(self, address: str, state_id: str) -> bool:
        """Return whether an answer comes from another state; it is logged once.

        Args:
            address: of the controller.
            state_id: of the answer.
        """
        if not state_id or not self.state_id or state_id == self.state_id:
            return False
        if (address, state_id) not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add((address, state_id))
            _log.error(
                "controller ignored, it has another state than the one of this replica's id: "
                + _ONE_STATE,
                controller=address,
                state=state_id,
                own_state=self.state_id,
            )
        return True

    def followed(
        self, answers: Mapping[str, ControllerMark], silent: Collection[str]
    ) -> frozenset[str]:
        """Return the controllers that can be followed.

        Args:
            answers: of controllers, by address.
            silent: addresses of those that have not answered.

        Raises:
            ConfigError: `controllerAddr` names controllers of several states, or may do so, and
                this replica belongs to none of them yet; or it belongs to another one.
        """
        found = frozenset(
            address
            for address, mark in answers.items()
            if not self.is_other(address, mark.state_id)
        )
        if self.state_id:
            self.problem = "" if found or not answers else self._refusal(answers)
        else:
            self.problem = _ambiguity(answers, silent)
        if self.problem:
            raise ConfigError(self.problem, key=_KEY)
        return found

    def _refusal(self, answers: Mapping[str, ControllerMark]) -> str:
        names = ", ".join(sorted(answers))
        return (
            f"{names}: this replica has its id from a controller with another state: "
            f"{_ONE_STATE}. To join the other one as a new replica, stop this broker and remove "
            f"brokerIdentity; after a restore of the controller without its stateId, {STATE_FILE}"
        )


def _ambiguity(answers: Mapping[str, ControllerMark], silent: Collection[str]) -> str:
    """Return why a replica without an id must not choose among controllers; empty if it may."""
    states = {mark.state_id: address for address, mark in sorted(answers.items()) if mark.state_id}
    if len(states) > 1:
        names = " and ".join(sorted(states.values()))
        return f"{names} have different states: {_ONE_STATE}"
    alone = [each for each, mark in sorted(answers.items()) if mark.state_id and not mark.is_shared]
    if alone and silent:
        # The silent one may have another state, with other replicas.
        names = ", ".join(sorted(silent))
        return f"{alone[0]} shares its state with none, and {names} does not answer: {_ONE_STATE}"
    return ""
