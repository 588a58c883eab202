"""`rocketpy store`: backs up, restores and resynchronises store directories."""

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.errors import BrokerError
from rocketpy.proto.headers.pull import ViewMessageRequestHeader
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import make_request
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.replication import backup as backups
from rocketpy.store.replication.resync import LocalLog, cut, equal_end, forget_identity, local_log
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.terminal.common import CONTEXT, confirm, output_option, run, yes_option
from rocketpy.terminal.parameters import NonEmptyPath
from rocketpy.terminal.render import show
from rocketpy.terminal.suggestions import HintingGroup

_MIB: Final = 1 << 20
_EVERY_BYTES: Final = 64 << 20
_DIRECTORY = NonEmptyPath(path_type=Path)
_STORE = NonEmptyPath(path_type=Path, exists=True, file_okay=False)
_COMMIT_LOG = click.option(
    "--commit-log",
    default="",
    metavar="DIR",
    help="storePathCommitLog, where it is not DIR/commitlog.",
)


@click.group(
    "store",
    cls=HintingGroup,
    context_settings=CONTEXT,
    epilog="Example: rocketpy store backup /var/lib/rocketpy/store /backup/monday",
)
def command() -> None:
    """Back up, restore and resynchronise store directories."""


@command.command(
    "backup", epilog="Example: rocketpy store backup /var/lib/rocketpy/store /backup/monday"
)
@click.argument("directory", metavar="DIR", type=_STORE)
@click.argument("to", metavar="TO", type=_DIRECTORY)
@_COMMIT_LOG
@output_option
def backup(*, directory: Path, to: Path, commit_log: str, output: str) -> int:
    """Copy the store directory DIR to TO; its broker may be running.

    TO must not exist or be empty. Each record of the copy is checked. The backup ends with the last
    message that was stored before the log was copied. A broker can start from the copy, and so can
    a new slave of this broker.
    """
    with _Progress("copied and checked") as progress:
        made = backups.back_up(directory, to, commit_log=commit_log, progress=progress)
    show([_row(made) | {"directory": str(to)}], output)
    return 1 if made.damaged else 0


@command.command(
    "restore", epilog="Example: rocketpy store restore /backup/monday /var/lib/rocketpy/store"
)
@click.argument("source", metavar="BACKUP", type=_STORE)
@click.argument("directory", metavar="DIR", type=_DIRECTORY)
@output_option
def restore(*, source: Path, directory: Path, output: str) -> int:
    """Check every record of BACKUP, and copy it to DIR.

    DIR must not exist or be empty; it appears when it is complete. For a new slave, start a broker
    on DIR with brokerRole SLAVE and its own brokerId.
    """
    with _Progress("checked and copied") as progress:
        made = backups.restore(source, directory, progress)
    show([_row(made) | {"directory": str(directory)}], output)
    return 0


def _row(made: backups.Backup) -> dict[str, object]:
    return {
        "begin": made.begin,
        "end": made.end,
        "records": made.records,
        "damaged": made.damaged,
        "log": made.identity,
    }


@command.command(
    "resync",
    epilog="Example: rocketpy store resync /var/lib/rocketpy/store --master 10.0.0.1:10911",
)
@click.argument("directory", metavar="DIR", type=_STORE)
@click.option("--master", metavar="HOST:PORT", help="Address of the master for clients.")
@click.option("--at", type=click.IntRange(min=0), metavar="OFFSET", help="Cut at this offset.")
@_COMMIT_LOG
@yes_option
@output_option
def resync(
    *,
    directory: Path,
    master: str | None,
    at: int | None,
    commit_log: str,
    yes: bool,
    output: str,
) -> int:
    """Cut the log of a stopped slave where it differs from its master's.

    Each record of the slave is checked. With --master the command finds the end of the intact part
    that equals the master's log. It shows what would be cut off, and
    asks before it does so. The bytes are kept in DIR/cut. If no part is known to be equal, the
    whole store is moved there, and the slave copies everything again.
    """
    if (master is None) == (at is None):
        raise click.UsageError("give either --master or --at")
    StoreDirectory(directory, commit_log)  # before the lock, which creates a file
    with closing(RealFiles().lock(directory / "lock")):
        with _Progress("checked") as progress:
            log = local_log(directory, commit_log, progress)
        if at is not None and not log.begin <= at <= log.end:
            raise click.BadParameter(
                f"{at} is outside the log, which has {log.begin} to {log.end}", param_hint="--at"
            )
        end = at if at is not None else run(_equal_end(log, str(master)))
        row: dict[str, Any] = {
            "directory": str(directory),
            "begin": log.begin,
            "end": log.end,
            "cut_at": end,
            "bytes": log.end - end,
            "kept_in": "",
        }
        if end < log.end:
            confirm(_question(log, end), yes=yes)
            row["kept_in"] = str(cut(log, end))
        if master is not None:
            forget_identity(directory)
    show([row], output)
    return 0


def _question(log: LocalLog, end: int) -> str:
    if end == log.begin:
        return f"Move the whole log of {log.root} ({log.begin} to {log.end}) aside?"
    return f"Cut {log.end - end:,} bytes off the log of {log.root}, from offset {end} on?"


async def _equal_end(log: LocalLog, master: str) -> int:
    """Ask a master record by record where the logs begin to differ."""
    async with rocketpy_admin.connect(master) as admin:
        runtime = await admin.broker_runtime(master)
        search = equal_end(log, int(runtime["commitLogMinOffset"]))
        try:
            phy_offset, _, record = next(search)
            while True:
                header = ViewMessageRequestHeader(offset=phy_offset)
                request = make_request(RequestCode.VIEW_MESSAGE_BY_ID, header.to_ext())
                response = await admin.servers.invoke(master, request)
                # A broker without the record answers with an error; so does one that is overloaded,
                # which must not count as a difference.
                if response.code not in {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}:
                    raise BrokerError.from_code(response.code, response.remark)
                is_equal = response.code == ResponseCode.SUCCESS and response.body == record
                phy_offset, _, record = search.send(is_equal)
        except StopIteration as found:
            end: int = found.value
            return end


class _Progress:
    """Prints how many bytes are done, to a terminal only."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done = 0
        self._printed = 0
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, size_bytes: int) -> None:
        self._done += size_bytes
        if self._is_terminal and self._done - self._printed >= _EVERY_BYTES:
            self._printed = self._done
            click.echo(f"\r{self._done // _MIB:,} MiB {self._what}", err=True, nl=False)

    def __enter__(self) -> Callable[[int], None]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._printed:
            click.echo("", err=True)
