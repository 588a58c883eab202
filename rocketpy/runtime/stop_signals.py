"""Signals that stop a process cleanly."""

import signal
from typing import Final

_ALWAYS: Final = (signal.SIGTERM, signal.SIGINT)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that a process has to handle: SIGTERM, SIGINT and mostly SIGHUP.

    A closed terminal sends SIGHUP, twice: from the kernel, and from its shell. `nohup` has it
    ignored, so that the process outlives its terminal; Windows does not have it.
    """
    hang_up: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if hang_up is None or signal.getsignal(hang_up) == signal.SIG_IGN:
        return _ALWAYS
    return (*_ALWAYS, hang_up)
