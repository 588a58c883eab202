"""Contexts: named clusters in a user's file, with name servers and account."""

import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final

import click

from rocketpy.errors import ConfigError

FILE_NAME: Final = "contexts.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cluster of a context.

    Attributes:
        namesrv: its name servers, `host:port;host:port`.
        access_key: name of the account; empty without one.
        secret_key: signs its requests; never shown.
        security_token: of a temporary account; never shown.
    """

    namesrv: str
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Contexts:
    """Content of the file of contexts.

    Attributes:
        clusters: by context name.
        current: name of the current context; empty if there is none.
    """

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    current: str = ""

    def get(self, name: str) -> Cluster:
        """Return a cluster; raises click.UsageError if the name is unknown."""
        if name not in self.clusters:
            there = ", ".join(sorted(self.clusters)) or "none yet: rocketpy context add"
            raise click.UsageError(f"context {name!r} does not exist (contexts: {there})")
        return self.clusters[name]

    def with_cluster(self, name: str, cluster: Cluster) -> "Contexts":
        """Return a copy with a cluster added or replaced.

        Raises:
            click.UsageError: the name has other characters than letters, digits and _ . -
        """
        if not _NAME.match(name):
            raise click.UsageError(
                f"{name!r} is not a valid name: use letters, digits and _ . - only"
            )
        return replace(self, clusters={**self.clusters, name: cluster})

    def without(self, name: str) -> "Contexts":
        """Return a copy without a cluster; raises click.UsageError if the name is unknown."""
        self.get(name)
        left = {each: cluster for each, cluster in self.clusters.items() if each != name}
        return Contexts(left, "" if self.current == name else self.current)


def contexts_file() -> Path:
    """Return the path of the file, below the user's configuration directory."""
    directory = Path(click.get_app_dir("rocketpy"))
    if not directory.is_absolute():
        # An empty or relative XDG_CONFIG_HOME counts as not set, by the specification of XDG.
        directory = Path("~/.config/rocketpy").expanduser()
    return directory / FILE_NAME


@contextmanager
def locked() -> Iterator[None]:
    """Keep other processes from changing the contexts between a load and a save; raises OSError."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # noqa: PLC0415 - not on Windows

    directory = contexts_file().parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The directory, because the file itself is replaced by each save.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def load() -> Contexts:
    """Read the contexts; none if the file does not exist.

    Raises:
        ConfigError: the file is malformed, or holds keys that other users may read.
        OSError: it cannot be read.
    """
    path = contexts_file()
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    try:
        found = _decoded(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"is not a file of `rocketpy context` ({error})", source=str(path)
        ) from error
    has_keys = any(each.secret_key for each in found.clusters.values())
    if has_keys and sys.platform != "win32" and mode & _OTHERS:
        raise ConfigError(
            f"holds keys, and other users may read it: chmod 600 {path}", source=str(path)
        )
    return found


def save(contexts: Contexts) -> None:
    """Write the contexts atomically, readable by the user only; raises OSError."""
    path = contexts_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    clusters = {
        name: {key: text for key, text in _texts(cluster).items() if text}
        for name, cluster in sorted(contexts.clusters.items())
    }
    text = json.dumps({"current": contexts.current, "contexts": clusters}, indent=2) + "\n"
    beside = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _texts(cluster: Cluster) -> dict[str, str]:
    return {each.name: getattr(cluster, each.name) for each in fields(cluster)}


def _decoded(data: dict[str, dict[str, dict[str, str]] | str]) -> Contexts:
    clusters = data["contexts"]
    current = data["current"]
    if not isinstance(clusters, dict) or not isinstance(current, str):
        raise TypeError("contexts or current has another type")
    found = {name: Cluster(**values) for name, values in clusters.items()}
    for cluster in found.values():
        if not all(isinstance(text, str) for text in _texts(cluster).values()):
            raise TypeError("a value is not a text")
    if current and current not in found:
        raise ValueError(f"context {current} does not exist")
    return Contexts(found, current)
