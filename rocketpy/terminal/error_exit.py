"""Error handling of commands: one sentence on standard error, and an exit code.

Exit codes: 0 success; 1 failure (port taken, store locked, no permission, no response);
2 wrong usage or configuration. Any other exception is a bug and shows its traceback. A
closed pipe on standard output, as with `| head`, counts as success.
"""

import contextlib
import io
import os
import sys

import click

from rocketpy.errors import (
    ConfigError,
    ExpressionError,
    IllegalMessageError,
    RocketPyError,
    ServersFailedError,
)
from rocketpy.runtime.os_resources import shortage_of

EXIT_FAILURE = 1
EXIT_USAGE = 2


def run_command(command: click.Command, name: str, arguments: list[str] | None = None) -> None:
    """Run a command line and end the process with its exit code.

    Args:
        command: the click command.
        name: the program's name, shown in usage and before every error.
        arguments: without the program's name; of the process by default.
    """
    open_missing_descriptors()
    refuse_optimised(name)
    escape_unprintable_output()
    sys.exit(_exit_code(command, name, arguments))


def escape_unprintable_output() -> None:
    """Make standard output and error write characters that their encoding lacks as escapes.

    Such characters may come from any message, and must not end a command with an error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def open_missing_descriptors() -> None:
    """Open the null device for each closed standard descriptor.

    A socket or the event loop would get its number otherwise, and receive what is printed.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one, because those below are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def refuse_optimised(name: str) -> None:
    """End the process under `python -O`, which drops assertions that RocketPy relies on."""
    if not __debug__:
        click.echo(
            f"{name}: does not run with python -O or PYTHONOPTIMIZE, which drop assertions",
            err=True,
        )
        sys.exit(EXIT_USAGE)


def _exit_code(command: click.Command, name: str, arguments: list[str] | None) -> int:
    try:
        # Not `command.main`, which ends the process with 1 when the pipe is closed.
        words = sys.argv[1:] if arguments is None else arguments
        with command.make_context(name, list(words)) as context:
            result = command.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure is reported, instead of at exit
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.ClickException, click.Abort, KeyboardInterrupt) as error:
        return _click_exit_code(error, name)
    except (ConfigError, ExpressionError, IllegalMessageError) as error:
        _fail(name, str(error))
        return EXIT_USAGE
    except ServersFailedError as error:
        for server, failure in error.failures.items():
            _fail(name, f"{server}: {failure}")
        return EXIT_FAILURE
    except RocketPyError as error:
        return _fail(name, str(error))
    except BrokenPipeError:
        forget_output()
        return 0
    except OSError as error:
        forget_output()
        return _fail(name, shortage_of(error) or _sentence(error))
    except (RuntimeError, ImportError) as error:
        shortage = shortage_of(error)
        if shortage is None:
            raise
        return _fail(name, shortage)
    return result if isinstance(result, int) else 0


def _click_exit_code(
    error: click.ClickException | click.Abort | KeyboardInterrupt, name: str
) -> int:
    if not isinstance(error, click.ClickException):
        return _fail(name, "stopped")
    if not isinstance(error, click.UsageError):
        return _fail(name, error.format_message())
    if type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2; its message is the help
        error.show()
        return EXIT_USAGE
    if error.ctx is not None:
        _tell(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n")
    _fail(name, error.format_message())
    return EXIT_USAGE


def forget_output() -> None:
    """Prevent a flush when the interpreter ends: standard output cannot be written."""
    # Not a file, closed, or no descriptor is left.
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(sentence: str) -> None:
    """Print one line on standard error, with the program's name before it."""
    context = click.get_current_context(silent=True)
    program = context.find_root().info_name if context is not None else None
    _fail(program or "rocketpy", sentence)


def _fail(name: str, sentence: str) -> int:
    _tell(f"{name}: {' '.join(sentence.split())}")
    return EXIT_FAILURE


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # an unwritable standard error changes no exit code
        click.echo(text, err=True)


def _sentence(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
