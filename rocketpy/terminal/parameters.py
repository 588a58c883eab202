"""Parameter types of commands: names and addresses that are checked before a request."""

import math
import os
import re
from typing import Final

import click

from rocketpy.proto.validators import check_group, check_topic

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|file:/")
_LARGEST_OFFSET: Final = (1 << 63) - 1


def topic_name(text: str) -> str:
    """Return the name of a topic; raises click.BadParameter if no server allows it."""
    return _checked("topic", text, check_topic(text))


def group_name(text: str) -> str:
    """Return the name of a group; raises click.BadParameter if no server allows it."""
    return _checked("group", text, check_group(text))


def _checked(kind: str, text: str, reason: str | None) -> str:
    if reason is None:
        return text
    raise click.BadParameter(f"{text!r} is not the name of a {kind}: {reason.rstrip('.')}")


def server_address(text: str) -> str:
    """Return `host:port`; raises click.BadParameter for another text."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    return text


def raw_bytes(text: str) -> bytes:
    """Return the bytes that the shell passed as an argument, in any encoding."""
    return os.fsencode(text)


def offset_64(
    context: click.Context,  # noqa: ARG001 - click's signature
    parameter: click.Parameter,  # noqa: ARG001
    value: int | None,
) -> int | None:
    """Return an offset, as the callback of an option; the protocol has 64 bits for it."""
    if value is not None and value > _LARGEST_OFFSET:
        raise click.BadParameter(f"{value} does not fit in 64 bits")
    return value


class FiniteRange(click.FloatRange):
    """Range of numbers; unlike click's, it has neither `nan` nor `inf`."""

    def convert(
        self,
        value: float,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the number; raises click.BadParameter for another text or number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(
                f"{value!r} is not a number in the range {self._describe_range()}.", param, ctx
            )
        return number


def is_url(text: str) -> bool:
    """Return whether a text that should be a path is a URL, as Spark and Hadoop take them."""
    return _URL.match(text) is not None


class NonEmptyPath(click.Path):
    """Path of a file or directory; unlike click's, `""` is not the working directory.

    An empty argument comes from a variable that is not set, as in `--data "$DATA"`. A URL is not a
    path: `s3://bucket` would be the directory `s3:` below the working directory.
    """

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path; raises click.BadParameter for an empty one, or a URL."""
        text = os.fsdecode(value)
        if not text:
            self.fail("the path is empty; for the working directory, give a dot", param, ctx)
        if is_url(text):
            self.fail(
                f"{text!r} is a URL, where the path of a file or directory is expected", param, ctx
            )
        return super().convert(value, param, ctx)


class TextCommand(click.Command):
    """Command whose parameters are text: one that is not valid in the locale is wrong usage.

    Python keeps such bytes of the command line as lone surrogates, which no request can carry.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raises click.BadParameter for one that is no text."""
        rest = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name or "")
            if isinstance(param.type, click.Path):
                continue
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, str) and not _is_text(each):
                    raise click.BadParameter(f"{each!r} is not text", ctx, param)
        return rest


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
