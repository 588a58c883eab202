"""Options of the format `rocketmq.store`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import EXPRESSION_SQL92, EXPRESSION_TAG, SUB_ALL
from rocketpy.spark.offsets import EARLIEST, LATEST, parse_offsets
from rocketpy.spark.options import boolean, choice, option, text, whole, words
from rocketpy.spark.read_options import ChoiceOptions, PushdownOptions

_BY_QUEUE = '`{"T":{"broker-a":{"0":23}}}`'


def _bound(word: str) -> Callable[[str], Mapping[MessageQueue, int]]:
    """Return a parser of offsets by queue, or of a word for every queue."""

    def parse(value: str) -> Mapping[MessageQueue, int]:
        if value.strip().startswith("{"):
            return parse_offsets(value)
        choice(word)(value)
        return {}

    return parse


def _paths(value: str) -> tuple[str, ...]:
    """Parse a JSON list of paths, the form in which Spark passes several."""
    try:
        found = json.loads(value)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError("is not a list of paths")
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class StoreOptions(PushdownOptions, ChoiceOptions):
    """Options of a read of store directories."""

    path: tuple[str, ...] = option(
        "path",
        words(),
        (),
        about="store directories (`storePathRootDir`), comma-separated, or patterns with `*`; the "
        "argument of `load()`",
    )
    paths: tuple[str, ...] = option("paths", _paths, (), about="store directories as a JSON list")
    table: Literal["messages", "offsets", "topics", "groups"] = option(
        "table",
        choice("messages", "offsets", "topics", "groups"),
        "messages",
        about="contents of rows: messages; consumer offsets with the ends of queues and the lag; "
        "topics; consumer groups",
    )
    topics: tuple[str, ...] = option(
        "topics",
        words(),
        (),
        about="topics, comma-separated, or patterns with `*`",
        shown="all except system topics",
    )
    scan: Literal["queue", "log", "index"] = option(
        "scan",
        choice("queue", "log", "index"),
        "queue",
        about="how messages are found: `queue`, a task for each consume queue; `log`, a task for "
        "each file of the commit log; `index`, by `keys`",
    )
    keys: tuple[str, ...] = option(
        "keys", words(), (), about="with `scan=index`: message keys or ids, comma-separated"
    )
    starting_offsets: Mapping[MessageQueue, int] | None = option(
        "startingOffsets",
        _bound("earliest"),
        None,
        about=f"`earliest`, or {_BY_QUEUE} with -2 for earliest (`scan=queue`)",
        shown="earliest",
    )
    ending_offsets: Mapping[MessageQueue, int] | None = option(
        "endingOffsets",
        _bound("latest"),
        None,
        about=f"`latest`, or {_BY_QUEUE} with -1 for latest (`scan=queue`)",
        shown="latest",
    )
    broker_name: tuple[str, ...] = option(
        "brokerName",
        words(),
        (),
        about="values of the column `brokerName`, one for each directory in the order of `path`; "
        "no file of a store contains it",
        shown="the directory's name",
    )
    commit_log: str = option(
        "commitLogPath",
        text,
        "",
        about="directory of the commit log (`storePathCommitLog`), for a single store directory",
        shown="`commitlog/` in the store directory",
    )
    with_deleted: bool = option(
        "withDeleted",
        boolean,
        default=False,
        about="with `scan=log`: include messages of deleted topics that the log still has",
    )
    index_slots: int | None = option(
        "maxHashSlotNum",
        whole(1),
        None,
        about="with `scan=index`: hash slots of an index file, the broker's setting of this name",
        shown="a quarter of its entries",
    )

    def __post_init__(self) -> None:
        """Check options against each other.

        Raises:
            ConfigError: options that exclude each other, or one that needs another.
        """
        self.check_choice()
        if not self.path and not self.paths:
            raise ConfigError("is required: load(directory)", key="path")
        if bool(self.keys) != (self.scan == "index"):
            raise ConfigError("needs scan=index, and scan=index needs keys", key="keys")
        offsets = {"startingOffsets": self.starting_offsets, "endingOffsets": self.ending_offsets}
        for name, given in offsets.items():
            if given and self.scan != "queue":
                raise ConfigError("needs scan=queue", key=name)
        if self.data_loss == "mark" and self.scan != "queue":
            raise ConfigError("mark needs scan=queue", key="onDataLoss")
        if LATEST in (self.starting_offsets or {}).values():
            raise ConfigError("cannot be the latest (-1)", key="startingOffsets")
        if EARLIEST in (self.ending_offsets or {}).values():
            raise ConfigError("cannot be the earliest (-2)", key="endingOffsets")

    def roots(self) -> list[str]:
        """Return the directories, with patterns resolved, in order.

        Raises:
            ConfigError: a pattern without a match, or a wrong number of broker names.
        """
        found: list[str] = []
        for each in (*self.path, *self.paths):
            plain = each.removeprefix("file://")
            if any(sign in plain for sign in "*?["):
                path = Path(plain).expanduser().absolute()
                inside = str(path.relative_to(path.anchor))
                matches = sorted(map(str, Path(path.anchor).glob(inside)))
                if not matches:
                    raise ConfigError(f"nothing matches {each!r}", key="path")
                found += matches
            else:
                found.append(str(Path(plain).expanduser().absolute()))
        if self.broker_name and len(self.broker_name) != len(found):
            reason = f"has {len(self.broker_name)} names for {len(found)} directories"
            raise ConfigError(reason, key="brokerName")
        if self.commit_log and len(found) > 1:
            raise ConfigError("is for a single directory", key="commitLogPath")
        return found

    @property
    def tags(self) -> str:
        """The tag expression, `a || b`; `*` for all."""
        return self.sub_expression if self.expression_type == EXPRESSION_TAG else SUB_ALL

    @property
    def sql(self) -> str:
        """The SQL92 condition; empty for none."""
        return self.sub_expression if self.expression_type == EXPRESSION_SQL92 else ""

    def broker_names(self) -> list[str]:
        """Return the broker name of each directory: as given, else the directory's name or path."""
        if self.broker_name:
            return list(self.broker_name)
        roots = self.roots()
        names = [Path(root).name for root in roots]
        return names if len(set(names)) == len(names) else roots
