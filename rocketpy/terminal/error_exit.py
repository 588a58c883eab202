"""Error handling of commands: one sentence on standard error, and an exit code.

Exit codes: 0 success; 1 failure (port taken, store locked, no permission, no response);
2 wrong usage or configuration. Any other exception is a bug and shows its traceback.
"""

import os
import sys

import click

from rocketpy.errors import ConfigError, RocketPyError

EXIT_CANNOT = 1
EXIT_USAGE = 2


def run_command(command: click.Command, name: str, arguments: list[str] | None = None) -> None:
    """Run a command line and end the process with its exit code.

    Args:
        command: the click command.
        name: the program's name, shown in usage and before every error.
        arguments: without the program's name; of the process by default.
    """
    refuse_optimised(name)
    sys.exit(_exit_code(command, name, arguments))


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
        result = command.main(arguments, prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE if isinstance(error, click.UsageError) else EXIT_CANNOT
    except click.Abort:
        return _fail(name, "stopped")
    except ConfigError as error:
        _fail(name, str(error))
        return EXIT_USAGE
    except RocketPyError as error:
        return _fail(name, str(error))
    except BrokenPipeError:
        forget_output()
        return EXIT_CANNOT
    except OSError as error:
        return _fail(name, _sentence(error))
    return result if isinstance(result, int) else 0


def forget_output() -> None:
    """Prevent a flush when the interpreter ends: the reader of standard output is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(name: str, sentence: str) -> int:
    click.echo(f"{name}: {' '.join(sentence.split())}", err=True)
    return EXIT_CANNOT


def _sentence(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
