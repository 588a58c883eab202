"""What the shell offers after TAB: names of topics, groups and brokers, asked of the cluster.

A cluster that does not answer within a second, or any other fault, offers nothing: whoever presses
TAB waits no longer, and nothing is ever written beside the names.
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
"""Environment variable with other seconds than `LIMIT_S`, for clusters far away."""
VARIABLE: Final = "_ROCKETPY_COMPLETE"


class LineComplete(BashComplete):
    """Bash, which takes words apart at colons: addresses would be three of them."""

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
        """Return the words of the line before the one to complete, and that one."""
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)[1:]
        if not words or line[-1].isspace():
            return words, ""
        return words[:-1], words[-1]


add_completion_class(LineComplete)


def complete(command: click.Command, name: str) -> NoReturn:
    """Answer the shell, which asks through the environment, and end the process.

    Args:
        command: the program.
        name: its name.
    """
    with contextlib.suppress(Exception):  # whoever presses TAB wants no error
        command.main(prog_name=name, complete_var=VARIABLE)
    sys.exit(0)


def topic_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a topic; those of the system once a % is there."""

    async def ask(admin: "Admin") -> list[str]:
        return await admin.topics(include_system=incomplete.startswith("%"))

    return _names(ctx, incomplete, ask)


def group_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a consumer group, of those that brokers have."""

    async def ask(admin: "Admin") -> list[str]:
        from rocketpy.proto.topic_names import is_system_group  # noqa: PLC0415 - as below

        names: set[str] = set()
        for address in (await admin.broker_addresses()).values():
            names |= (await admin.group_configs(address)).keys()
        return [name for name in names if not is_system_group(name)]

    return _names(ctx, incomplete, ask)


def broker_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a broker."""

    async def ask(admin: "Admin") -> list[str]:
        return list(await admin.broker_addresses())

    return _names(ctx, incomplete, ask)


def _names(
    ctx: click.Context, incomplete: str, ask: Callable[["Admin"], Awaitable[list[str]]]
) -> list[str]:
    """Ask the cluster that the line names; in a thread, for a look-up of a name cannot be ended."""
    namesrv = ctx.params.get("namesrv")
    limit_s = float(os.environ.get(LIMIT_VARIABLE, LIMIT_S))
    found: list[str] = []

    def work() -> None:
        # Imported here: completing the name of a command needs no event loop.
        import asyncio  # noqa: PLC0415

        from rocketpy import admin as rocketpy_admin  # noqa: PLC0415
        from rocketpy.terminal.common import run  # noqa: PLC0415

        async def query() -> list[str]:
            async with asyncio.timeout(limit_s):
                async with rocketpy_admin.connect(namesrv) as admin:
                    return await ask(admin)

        try:
            found.extend(run(query()))
        except Exception as error:  # noqa: BLE001 - whoever presses TAB wants no error
            logging.getLogger(__name__).debug("nothing to offer: %s", error)

    thread = threading.Thread(target=work, name="completion", daemon=True)
    thread.start()
    thread.join(limit_s)
    return sorted(name for name in list(found) if name.startswith(incomplete))
