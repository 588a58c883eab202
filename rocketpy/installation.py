"""Detects the other distribution that owns a package called `rocketpy`.

`rocketpy` on package indexes is a flight simulator for rockets. It and `rocketpy-mq` write the same
file, `rocketpy/__init__.py`; the installer that comes last overwrites it without a word, and the
uninstaller that comes first removes it for both. The modules below `rocketpy/` have different
names, so each of the three outcomes is seen by a module that is still ours.
"""

import sys
from typing import Final

__all__ = ["conflict", "require_own_package"]

_MARK: Final = "_DISTRIBUTION"
"""Attribute of `rocketpy/__init__.py` that only `rocketpy-mq` sets."""
_ADVICE: Final = (
    "Install them in separate environments. To keep rocketpy-mq in this one: "
    "pip uninstall rocketpy; pip install --force-reinstall --no-deps rocketpy-mq"
)


def require_own_package() -> None:
    """Raise ImportError unless `rocketpy/__init__.py` is the one of `rocketpy-mq`."""
    package = sys.modules["rocketpy"]
    if _MARK in vars(package):
        return
    if getattr(package, "__file__", None) is None:
        raise ImportError(
            "rocketpy/__init__.py is missing: uninstalling the flight simulator `rocketpy` removed "
            "it. Restore it: pip install --force-reinstall --no-deps rocketpy-mq"
        )
    raise ImportError(
        "rocketpy-mq (Apache RocketMQ in Python) and rocketpy (a flight simulator) are installed "
        f"in one environment, and {package.__file__} is the flight simulator's. {_ADVICE}"
    )


def conflict(name: str) -> str | None:
    """Explain why a name is missing, if the flight simulator is installed here as well.

    Args:
        name: an attribute that a program expects in the package `rocketpy`.
    """
    from importlib.metadata import PackageNotFoundError, metadata  # noqa: PLC0415 - seldom needed

    try:
        about = metadata("rocketpy")
    except PackageNotFoundError:
        return None
    # Before 0.9 this distribution was called `rocketpy` itself.
    if "RocketMQ" in (about["Summary"] or ""):
        return None
    return (
        f"rocketpy-mq (Apache RocketMQ in Python) has no {name!r}. The flight simulator rocketpy "
        f"{about['Version']} is installed in the same environment, and its rocketpy/__init__.py "
        f"was overwritten. {_ADVICE}"
    )
