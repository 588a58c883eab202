"""Signals that stop a process cleanly."""

import signal
import threading
from typing import Final

_ALWAYS: Final = (signal.SIGTERM, signal.SIGINT)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that a process has to handle: SIGTERM, SIGINT and mostly SIGHUP.

    There are none on another thread than the main one, where Python takes no handlers. A closed
    terminal sends SIGHUP, twice: from the kernel, and from its shell. `nohup` has it ignored, so
    that the process outlives its terminal; Windows does not have it.
    """
    if threading.current_thread() is not threading.main_thread():
        return ()
    hang_up: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if hang_up is None or signal.getsignal(hang_up) == signal.SIG_IGN:
        return _ALWAYS
    return (*_ALWAYS, hang_up)
