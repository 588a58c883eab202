"""Spark session of a job, and errors of Spark as one sentence.

PySpark is imported only when a job creates a session.
"""

import importlib.util
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rocketpy.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[*,3]"
"""Allows three attempts of a task; with `local[*]` one failure ends a job."""
_NEEDED: Final = ("pyspark", "pyarrow", "numpy")
_RAISED: Final = re.compile(
    r"^(?:pyspark\.errors\.exceptions\.base\.)?([\w.]*(?:Error|Exception)): (.+)$"
)
_MEMORY: Final = "1g"
_DEBUG: Final = "rocketpy.debug"
_QUIET_LOG: Final = Path(__file__).with_name("log4j2.properties")


def set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Store the option `--debug` of a command, which shows Spark's log and full errors."""
    context.meta[_DEBUG] = value


def is_debug() -> bool:
    """Return whether the command was given `--debug`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_DEBUG))


def need_extra(*modules: str) -> None:
    """Raise JobError unless the extra that jobs need is installed.

    Args:
        modules: required modules; default: all that Spark jobs need.
    """
    missing = [each for each in modules or _NEEDED if importlib.util.find_spec(each) is None]
    if missing:
        raise JobError(
            f"{', '.join(missing)} missing, required by this job: pip install 'rocketpy-mq[spark]'"
        )


def spark_session(
    app: str, *, master: str = LOCAL_MASTER, conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """Return the session of `spark-submit`, or a local one.

    Args:
        app: name of the job.
        master: where to run, unless `spark-submit` has set it.
        conf: settings of Spark, which take precedence over the defaults.

    Raises:
        JobError: PySpark or Java is missing.
    """
    need_extra()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it takes a second

    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.authenticate.socketTimeout": "120s",  # busy machines exceed 15 s
    }
    builder = SparkSession.builder.appName(f"rocketpy {app}")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not started by spark-submit
        # Otherwise planners run the first `python3` of the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {
            "spark.driver.memory": _MEMORY,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
        }
        builder = builder.master(master)
        if not is_debug():
            _silence_start()
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    with plain_errors():
        with _hang_up_ignored():
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("WARN" if is_debug() else "OFF")
    return session


@contextmanager
def _hang_up_ignored() -> Iterator[None]:
    """Start processes that ignore SIGHUP during the block.

    A closed terminal sends it to the JVM as well, which would end before the batch of a job that
    ends with its current batch. The JVM ends with the job in any case.
    """
    hang_up: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if hang_up is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(hang_up, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(hang_up, before)


def _silence_start() -> None:
    """Disable the log of the JVM to be started; its errors arrive as exceptions."""
    name = "SPARK_SUBMIT_OPTS"
    option = f'"-Dlog4j2.configurationFile={_QUIET_LOG.as_uri()}"'
    os.environ[name] = f"{option} {os.environ.get(name, '')}".strip()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Convert errors of Spark into a JobError of one sentence."""
    try:
        yield
    except Exception as error:
        if not _is_of_spark(error):
            raise
        if is_debug():
            traceback.print_exception(error)
        raise JobError(sentence_of(str(error))) from error


def _is_of_spark(error: Exception) -> bool:
    return any(
        each.__module__.partition(".")[0] in {"pyspark", "py4j"} for each in type(error).__mro__
    )


def sentence_of(text: str) -> str:
    """Return the relevant sentence of an error of Spark.

    That is the last exception of a Python traceback from a worker, or the first line without the
    stack of the JVM.
    """
    raised = [found for line in text.splitlines() if (found := _RAISED.match(line.strip()))]
    own = [each for each in raised if each[1].startswith("rocketpy.")] or raised
    if own:
        return own[-1][2].strip()
    first = next((line.strip() for line in text.splitlines() if line.strip()), text)
    return first if "JAVA_GATEWAY" not in first else f"{first} Is Java 17 or newer installed?"
