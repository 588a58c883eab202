import pytest

from rocketpy.runtime.logs import fields_of


class Named:
    def __str__(self) -> str:
        return "as text"

    def __repr__(self) -> str:
        return "as written"


@pytest.mark.parametrize(
    ("template", "arguments", "expected"),
    [
        ("listening name=%s port=%d", ("broker", 7), ("listening", {"name": "broker", "port": 7})),
        ("open: after_crash=%s", (False,), ("open", {"after_crash": False})),
        ("%s, refused: path=%s", ("no space", Named()), ("no space, refused", {"path": "as text"})),
        ("100%% full disk=%s", ("a b=c",), ("100% full", {"disk": "a b=c"})),
        ("slow took_s=%.1f", (1.26,), ("slow", {"took_s": "1.3"})),
        (
            "%(what)s fails: group=%(group)s error=%(error)r",
            {"what": "a job", "group": "g", "error": Named(), "more": 1},
            ("a job fails", {"group": "g", "error": "as written"}),
        ),
    ],
)
def test_fields_at_the_end_are_taken_apart(
    template: str, arguments: object, expected: tuple[str, dict[str, object]]
) -> None:
    assert fields_of(template, arguments) == expected
    fields = fields_of(template, arguments)
    assert fields is not None
    assert {key: type(value) for key, value in fields[1].items()} == {
        key: type(value) for key, value in expected[1].items()
    }


@pytest.mark.parametrize(
    ("template", "arguments"),
    [("plain", ()), ("%s is damaged", ("f",)), ("a=%s b", (1,)), ("a=%s: %s", (1, 2)), ("b=1", ())],
)
def test_other_lines_stay_as_they_are(template: str, arguments: object) -> None:
    assert fields_of(template, arguments) is None
