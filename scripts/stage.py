"""Times the stages of `make test`.

    stage.py begin                    forget the stages of an earlier run
    stage.py run NAME COMMAND ...     run a command, note how long it took, return its exit code
    stage.py report                   print the stages; warn when they took longer than they should

The report is printed as well when a stage fails. Time alone never fails a run.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_NOTES: Final = Path(__file__).resolve().parents[1] / "build" / "test-stages.txt"
_SETUP: Final = "set-up"
_LIMIT_MIN: Final = 20
_LIMIT_WITH_SETUP_MIN: Final = 25


def run(name: str, command: list[str]) -> int:
    """Run a stage and note its time; report when it failed."""
    start_s = time.monotonic()
    exit_code = subprocess.run(command, check=False).returncode
    with _NOTES.open("a", encoding="utf-8") as notes:
        notes.write(f"{time.monotonic() - start_s:.1f} {name}\n")
    if exit_code:
        report()
        print(f"make test: FAILED in: {name}", file=sys.stderr)
    return exit_code


def report() -> None:
    """Print the minutes of each stage."""
    stages = [line.split(" ", 1) for line in _NOTES.read_text(encoding="utf-8").splitlines()]
    minutes = {name: float(seconds) / 60 for seconds, name in stages}
    print("\nminutes  stage of make test")
    for name, spent in minutes.items():
        print(f"{spent:7.1f}  {name}")
    total = sum(minutes.values())
    without_setup = total - minutes.get(_SETUP, 0.0)
    print(f"{total:7.1f}  in all, {without_setup:.1f} without the {_SETUP}", flush=True)
    if without_setup > _LIMIT_MIN or total > _LIMIT_WITH_SETUP_MIN:
        print(
            f"make test: WARNING: longer than {_LIMIT_MIN} minutes, or "
            f"{_LIMIT_WITH_SETUP_MIN} with the {_SETUP}; see docs/testing.md",
            file=sys.stderr,
        )


def main() -> int:
    """Do what the first argument says; return the exit code."""
    match sys.argv[1:]:
        case ["begin"]:
            _NOTES.parent.mkdir(exist_ok=True)
            _NOTES.write_text("", encoding="utf-8")
        case ["run", name, *command] if command:
            return run(name, command)
        case ["report"]:
            report()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
