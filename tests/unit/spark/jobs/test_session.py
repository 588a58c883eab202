import importlib.util
import signal
import subprocess
import sys
import threading

import pytest

from rocketpy.errors import JobError
from rocketpy.spark.jobs import session
from rocketpy.spark.jobs.session import need_extra, plain_errors, sentence_of

WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed when running: Traceback (most recent call last):
  File "x.py", line 1, in f
    raise ConfigError("no such option")
rocketpy.errors.ConfigError: subscrib: no such option; did you mean subscribe?

During handling of the above exception, another exception occurred:

pyspark.errors.exceptions.base.PySparkRuntimeError: [X] something else
 SQLSTATE: 38000
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WORKER, "subscrib: no such option; did you mean subscribe?"),
        ("\n[PATH_NOT_FOUND] It is not: x\n\tat org.apache", "[PATH_NOT_FOUND] It is not: x"),
        ("a\nValueError: of a job\n\tat org.apache", "of a job"),
        ("[JAVA_GATEWAY_EXITED] X.", "[JAVA_GATEWAY_EXITED] X. Is Java 17 or newer installed?"),
    ],
)  # fmt: skip
def test_sentence_of_an_error_is_its_relevant_sentence(text: str, sentence: str) -> None:
    assert sentence_of(text) == sentence


def test_plain_errors_leaves_other_errors_unchanged() -> None:
    with pytest.raises(KeyError):
        with plain_errors():
            raise KeyError("x")
    with pytest.raises(JobError, match="already"):
        with plain_errors():
            raise JobError("already")


def test_need_extra_names_the_missing_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    need_extra("json")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        JobError, match=r"pyspark, pyarrow, numpy .*pip install 'rocketpy-mq\[spark\]'"
    ):
        need_extra()


def test_process_that_a_session_starts_ignores_a_closed_terminal() -> None:
    shown = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with session._hang_up_ignored():
            inside = subprocess.check_output([sys.executable, "-c", shown], text=True)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        after = subprocess.check_output([sys.executable, "-c", shown], text=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (inside, after) == ("True\n", "False\n")


def test_session_of_another_thread_leaves_signals_alone() -> None:
    seen: list[object] = []

    def start() -> None:
        with session._hang_up_ignored():
            seen.append(signal.getsignal(signal.SIGHUP))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGHUP)]
