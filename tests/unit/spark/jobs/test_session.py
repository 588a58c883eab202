import importlib.util

import pytest

from rocketpy.errors import JobError
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
