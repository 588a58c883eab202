"""`rocketpy group dlq`: lists dead letters, shows one, and sends them back."""

import asyncio
from collections.abc import Iterable

import click

from rocketpy import admin as rocketpy_admin
from rocketpy.admin.dead_letters import DeadLetter
from rocketpy.admin.results import Answers
from rocketpy.errors import RocketPyError, TopicNotExistError
from rocketpy.terminal.cluster_calls import ask, exit_code
from rocketpy.terminal.common import CONTEXT, confirm, namesrv_option, output_option, yes_option
from rocketpy.terminal.completion import group_names
from rocketpy.terminal.error_exit import EXIT_FAILURE, complain
from rocketpy.terminal.parameters import FiniteRange, TextCommand, group_name
from rocketpy.terminal.render import iso, message_row, nothing_found, print_message, show

_COLUMNS = ("id", "time", "topic", "retries", "exception", "reason", "original_id")
_DONE = ("id", "topic", "result", "error")
_ROWS_SHOWN = 20


@click.command(
    "dlq",
    cls=TextCommand,
    context_settings=CONTEXT,
    epilog="Example: rocketpy group dlq readers --requeue --all --rate 50",
)
@click.argument("group", type=group_name, shell_complete=group_names)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--show", "shown_id", metavar="ID", help="Show one letter with its body.")
@click.option("--requeue", is_flag=True, help="Send letters back to their topics: ID... or --all.")
@click.option("--all", "every", is_flag=True, help="With --requeue: all letters.")
@click.option("--dry-run", is_flag=True, help="With --requeue: only show what would happen.")
@click.option(
    "--rate",
    type=FiniteRange(0, min_open=True),
    help="With --requeue: messages a second, evenly spaced.",
)
@click.option(
    "--max",
    "max_count",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Limit of a list, which has the newest letters.",
)
@yes_option
@namesrv_option
@output_option
def command(  # noqa: PLR0913 - one argument an option
    *,
    group: str,
    ids: tuple[str, ...],
    shown_id: str | None,
    requeue: bool,
    every: bool,
    dry_run: bool,
    rate: float | None,
    max_count: int,
    yes: bool,
    namesrv: str,
    output: str,
) -> int:
    """List the dead letters of a consumer group, show one, or send them back.

    ID is a letter's id (msg_id), the id of the original message, or the letter's own offset id.
    With --requeue, letters go back to the topics they were sent to, where every group receives
    them, with body, tag, keys and properties kept and the retries counted from 0. They also stay
    where they are; a letter that was requeued before is skipped. Asks for confirmation.
    """
    if (every or dry_run or rate is not None or ids) and not requeue:
        raise click.UsageError("ID, --all, --dry-run and --rate need --requeue")
    if requeue and (bool(ids) == every or shown_id is not None):
        raise click.UsageError("with --requeue, give either IDs or --all, and no --show")
    if shown_id is not None:
        return _show_letter(namesrv, group, shown_id, output)
    if not requeue:
        return _list(namesrv, group, max_count, output)
    letters = _find(namesrv, group, None)
    chosen = list(letters) if every else _selected(letters, ids)
    if not chosen:
        show([], output, columns=_DONE, empty=f"group {group} has no dead letters")
        return exit_code(letters.failures)
    if not dry_run:
        topics = ", ".join(sorted({each.origin_topic for each in chosen}))
        confirm(f"Send {len(chosen):,} dead letters of group {group} back to {topics}?", yes=yes)
    rows = ask(namesrv, lambda admin: _requeue(admin, chosen, rate, dry_run=dry_run))
    if output == "table" and len(rows) > _ROWS_SHOWN:
        for result in dict.fromkeys(str(row["result"]) for row in rows):
            click.echo(f"{result}: {sum(row['result'] == result for row in rows):,}")
    else:
        show(rows, output, columns=_DONE)
    failed = [row for row in rows if row["error"]]
    if failed:
        complain(f"{len(failed):,} letters were not requeued, the first because: "
                 f"{failed[0]['error']}")  # fmt: skip
    return max(exit_code(letters.failures), EXIT_FAILURE if failed else 0)


def _find(namesrv: str, group: str, max_count: int | None) -> Answers[DeadLetter]:
    """Return the letters of a group; none if it has no dead letter topic."""

    async def work(admin: rocketpy_admin.Admin) -> Answers[DeadLetter]:
        try:
            return await admin.dead_letters(group, max_count=max_count)
        except TopicNotExistError:
            await admin.check_group(group)
            return Answers()

    return ask(namesrv, work)


def _list(namesrv: str, group: str, max_count: int, output: str) -> int:
    letters = _find(namesrv, group, max_count)
    rows = [_row(each) for each in letters]
    show(rows, output, columns=_COLUMNS, empty=f"group {group} has no dead letters")
    if letters.has_more:
        complain(f"these are the newest {len(rows):,} letters, there are more: raise --max")
    return exit_code(letters.failures)


def _show_letter(namesrv: str, group: str, letter_id: str, output: str) -> int:
    letters = _find(namesrv, group, None)
    try:
        chosen = _selected(letters, [letter_id])[-1]
    except click.ClickException as error:
        raise nothing_found(error.message, output) from error
    message = ask(namesrv, lambda admin: admin.message_at(chosen.queue, chosen.offset))
    row = message_row(message, chosen.queue.broker_name)
    if output == "json":
        show([{**row, **_row(chosen)}], output)
    else:
        print_message({**{key: value for key, value in _row(chosen).items() if value}, **row})
    return exit_code(letters.failures)


def _selected(letters: Iterable[DeadLetter], ids: Iterable[str]) -> list[DeadLetter]:
    """Return the letters with the given ids; raises click.ClickException for an unknown id."""
    known: dict[str, dict[str, DeadLetter]] = {}
    for letter in letters:
        for letter_id in (letter.msg_id, letter.origin_id, letter.letter_id):
            known.setdefault(letter_id.upper(), {})[letter.location] = letter
    missing = [each for each in ids if each.upper() not in known]
    if missing:
        raise click.ClickException(f"there is no dead letter with the id {', '.join(missing)}")
    chosen: dict[str, DeadLetter] = {}
    for letter_id in ids:
        chosen |= known[letter_id.upper()]
    return list(chosen.values())


async def _requeue(
    admin: rocketpy_admin.Admin, letters: Iterable[DeadLetter], rate: float | None, *, dry_run: bool
) -> list[dict[str, object]]:
    """Requeue letters one after the other; returns a row about each."""
    loop = asyncio.get_running_loop()
    next_s = loop.time()
    rows: list[dict[str, object]] = []
    is_sent = False
    for letter in letters:
        if rate is not None and is_sent:
            next_s = max(next_s + 1 / rate, loop.time())
            await asyncio.sleep(next_s - loop.time())
        error = ""
        try:
            is_new = await admin.requeue_dead_letter(letter, dry_run=dry_run)
            done = "would be requeued" if dry_run else "requeued"
            result = done if is_new else "requeued before"
            is_sent = is_new and not dry_run
        except RocketPyError as failure:
            is_sent, result, error = False, "failed", str(failure)
        rows.append(
            {
                "id": letter.msg_id,
                "topic": letter.origin_topic,
                "location": letter.location,
                "result": result,
                "error": error,
            }
        )
    return rows


def _row(letter: DeadLetter) -> dict[str, object]:
    return {
        "id": letter.msg_id,
        "time": iso(letter.stored_ms),
        "topic": letter.origin_topic,
        "original_id": letter.origin_id,
        "retries": letter.retries,
        "tag": letter.tag,
        "keys": letter.keys,
        "exception": letter.exception,
        "reason": letter.reason,
        "failed": iso(letter.failed_ms),
        "member": letter.member,
        "broker": letter.queue.broker_name,
        "queue": letter.queue.queue_id,
        "offset": letter.offset,
        "letter_id": letter.letter_id,
    }
