"""Options of the format `rocketmq.store`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SUB_ALL, build_subscription
from rocketpy.spark.offsets import EARLIEST, LATEST, parse_offsets
from rocketpy.spark.options import boolean, choice, option, text, whole, words
from rocketpy.spark.read_options import RowOptions

_BY_QUEUE = '`{"T":{"broker-a":{"0":23}}}`'


def _bound(word: str) -> Callable[[str], Mapping[MessageQueue, int]]:
    """Return a parser of offsets by queue; the word stands for every queue's own."""

    def parse(value: str) -> Mapping[MessageQueue, int]:
        if value.strip().startswith("{"):
            return parse_offsets(value)
        choice(word)(value)
        return {}

    return parse


def _paths(value: str) -> tuple[str, ...]:
    """Read a list of paths, as Spark hands several over."""
    try:
        found = json.loads(value)
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError("is no list of paths")
    return tuple(found)


def _tags(value: str) -> str:
    build_subscription("", value)
    return value


@dataclass(frozen=True, kw_only=True)
class StoreOptions(RowOptions):
    """What a read of store directories takes."""

    path: tuple[str, ...] = option(
        "path",
        words(),
        (),
        about="store directories (`storePathRootDir`), with commas between them, or patterns with "
        "`*`: what `load()` takes",
    )
    paths: tuple[str, ...] = option("paths", _paths, (), about="the same as a JSON list")
    table: Literal["messages", "offsets", "topics", "groups"] = option(
        "table",
        choice("messages", "offsets", "topics", "groups"),
        "messages",
        about="what rows are: messages; consumer offsets with the ends of queues and the lag; "
        "topics; consumer groups",
    )
    topics: tuple[str, ...] = option(
        "topics",
        words(),
        (),
        about="topics, with commas between them, or patterns with `*`",
        shown="all but the system's",
    )
    scan: Literal["queue", "log", "index"] = option(
        "scan",
        choice("queue", "log", "index"),
        "queue",
        about="the way to the messages: `queue`, a task a consume queue; `log`, a task a file of "
        "the commit log, whatever its topics; `index`, by `keys`",
    )
    tags: str = option(
        "subExpression",
        _tags,
        SUB_ALL,
        about="tags, as `a || b`; other messages are passed over by the hash in their queue's "
        "entry, before their bodies are touched",
    )
    keys: tuple[str, ...] = option(
        "keys", words(), (), about="with `scan=index`: message keys or ids, with commas between"
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
    starting_timestamp: int | None = option(
        "startingTimestamp", whole(0), None, about="stored at or after this time, ms since 1970"
    )
    ending_timestamp: int | None = option(
        "endingTimestamp", whole(0), None, about="stored before this time, ms since 1970"
    )
    min_partitions: int | None = option(
        "minPartitions",
        whole(1, 100_000),
        None,
        about="split large queues until there are about so many tasks",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", whole(1), None, about="split queues of more messages"
    )
    broker_name: tuple[str, ...] = option(
        "brokerName",
        words(),
        (),
        about="the column `brokerName`, a name for each directory in the order of `path`: no file "
        "says it",
        shown="the directory's name",
    )
    commit_log: str = option(
        "commitLogPath",
        text,
        "",
        about="where the commit log is (`storePathCommitLog`), for a single directory",
        shown="`commitlog/` in it",
    )
    data_loss: Literal["fail", "skip"] = option(
        "onDataLoss",
        choice("fail", "skip"),
        "fail",
        about="offsets asked for that are gone, or files that expire while they are read",
    )
    with_deleted: bool = option(
        "withDeleted",
        boolean,
        default=False,
        about="with `scan=log`: also messages of deleted topics, while the log has them",
    )
    pushdown: bool = option(
        "pushdown",
        boolean,
        default=False,
        about="let conditions on topic, brokerName, queueId, queueOffset, storeTimestamp and tags "
        "choose what is read; needs `spark.sql.python.filterPushdown.enabled=true`",
    )

    def __post_init__(self) -> None:
        """Check what belongs together.

        Raises:
            ConfigError: options that exclude each other, or one that needs another.
        """
        if not self.path and not self.paths:
            raise ConfigError("is required: load(directory)", key="path")
        if bool(self.keys) != (self.scan == "index"):
            raise ConfigError("goes with scan=index, and that with keys", key="keys")
        offsets = {"startingOffsets": self.starting_offsets, "endingOffsets": self.ending_offsets}
        for name, given in offsets.items():
            if given and self.scan != "queue":
                raise ConfigError("goes with scan=queue", key=name)
        if LATEST in (self.starting_offsets or {}).values():
            raise ConfigError("cannot be the latest (-1)", key="startingOffsets")
        if EARLIEST in (self.ending_offsets or {}).values():
            raise ConfigError("cannot be the earliest (-2)", key="endingOffsets")

    def roots(self) -> list[str]:
        """Return the directories, patterns resolved, in order.

        Raises:
            ConfigError: a pattern that nothing matches, or another number of broker names.
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

    def broker_names(self) -> list[str]:
        """Return the name for each directory: as given, else its own, else its path."""
        if self.broker_name:
            return list(self.broker_name)
        roots = self.roots()
        names = [Path(root).name for root in roots]
        return names if len(set(names)) == len(names) else roots
