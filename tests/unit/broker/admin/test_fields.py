import pytest

from rocketpy.broker.admin.fields import boolean, integer, optional, required
from rocketpy.errors import HeaderFieldError
from rocketpy.proto.command import make_request

REQUEST = make_request(1, {"n": "12", "bad": "x", "huge": "9" * 30, "empty": "", "yes": "True"})


def test_text() -> None:
    assert required(REQUEST, "n") == "12"
    assert optional(REQUEST, "none") == ""
    with pytest.raises(HeaderFieldError, match="none"):
        required(REQUEST, "none")


def test_numbers() -> None:
    assert integer(REQUEST, "n") == 12
    assert integer(REQUEST, "none", -1) == -1
    assert integer(REQUEST, "empty", 5) == 5
    for name in ("none", "bad", "huge", "empty"):
        with pytest.raises(HeaderFieldError, match=name):
            integer(REQUEST, name)


def test_flags() -> None:
    assert boolean(REQUEST, "yes")
    assert not boolean(REQUEST, "n", default=True)
    assert boolean(REQUEST, "none", default=True)
