"""The page about errors has every type, once, and says of a retry what the type says."""

import inspect
import re

from rocketpy import errors
from tests.docs.snippets import GUIDE

PAGE = (GUIDE / "errors.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|([^|]*)\|$", PAGE, re.MULTILINE)
TYPES = {
    name: found
    for name, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, errors.RocketPyError)
}
AS_ITS_CAUSE = {"PartlySentError", "ServersFailedError"}


def test_every_type_has_one_row() -> None:
    assert sorted(name for name, *_ in ROWS) == sorted(TYPES)


def test_each_row_says_whether_a_retry_helps_and_what_to_do() -> None:
    for name, whose, retry, todo in ROWS:
        expected = "yes" if TYPES[name].retriable else "no"
        assert retry.strip() == ("as its cause" if name in AS_ITS_CAUSE else expected), name
        assert todo.strip(), name
        leaf = not TYPES[name].__subclasses__()
        assert whose.strip() or not leaf or name == "JobError", name
