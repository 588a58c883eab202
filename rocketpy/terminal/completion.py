"""Shell completion of topic, group and broker names, which the cluster is asked for.

A cluster that does not answer within a second, or any other failure, offers nothing: the user
waits no longer than that, and nothing but names is ever written.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NoReturn

import click
from click.shell_completion import BashComplete, add_completion_class, split_arg_string

if TYPE_CHECKING:
    from rocketpy.admin import Admin

LIMIT_S: Final = 1.0
LIMIT_VARIABLE: Final = "ROCKETPY_COMPLETION_TIMEOUT"
"""Environment variable that replaces `LIMIT_S`, for remote clusters."""
VARIABLE: Final = "_ROCKETPY_COMPLETE"


class LineComplete(BashComplete):
    """Completion for Bash, which splits words at colons and so addresses into three words."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response
    response=$(COMP_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete $1 2>/dev/null)
    COMPREPLY=()
    local each
    for each in $response; do
        case "${each%%%%,*}" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${each#*,}") ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one to complete, and that word."""
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)[1:]
        if not words or line[-1].isspace():
            return words, ""
        return words[:-1], words[-1]


add_completion_class(LineComplete)


def complete(command: click.Command, name: str) -> NoReturn:
    """Answer a completion request in the environment, and end the process.

    Args:
        command: the program.
        name: its name.
    """
    with contextlib.suppress(Exception):  # an error text would garble the command line
        command.main(prog_name=name, complete_var=VARIABLE)
    sys.exit(0)


def topic_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a topic; system topics once a % is typed."""

    async def ask(admin: "Admin") -> list[str]:
        return await admin.topics(include_system=incomplete.startswith("%"))

    return _names(ctx, incomplete, ask)


def group_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a consumer group."""

    async def ask(admin: "Admin") -> list[str]:
        return await admin.group_names()

    return _names(ctx, incomplete, ask)


def broker_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a broker."""

    async def ask(admin: "Admin") -> list[str]:
        return list(await admin.broker_addresses())

    return _names(ctx, incomplete, ask)


def _names(
    ctx: click.Context, incomplete: str, ask: Callable[["Admin"], Awaitable[list[str]]]
) -> list[str]:
    """Query the cluster of the command line, in a thread, because DNS lookups have no time-out."""
    namesrv = ctx.params.get("namesrv")
    limit_s = float(os.environ.get(LIMIT_VARIABLE, LIMIT_S))
    found: list[str] = []

    def work() -> None:
        # Imported here, because completing a command name needs no event loop.
        import asyncio  # noqa: PLC0415

        from rocketpy import admin as rocketpy_admin  # noqa: PLC0415
        from rocketpy.terminal.common import run  # noqa: PLC0415

        async def query() -> list[str]:
            async with asyncio.timeout(limit_s):
                async with rocketpy_admin.connect(namesrv) as admin:
                    return await ask(admin)

        try:
            found.extend(run(query()))
        except Exception as error:  # noqa: BLE001 - an error text would garble the command line
            logging.getLogger(__name__).debug("completion failed: error=%s", error)

    thread = threading.Thread(target=work, name="completion", daemon=True)
    thread.start()
    thread.join(limit_s)
    return sorted(name for name in list(found) if name.startswith(incomplete))
