"""The image's build stage is given all that the build of a wheel reads, and compiles it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
STAGES = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
BUILD = next(each for each in STAGES if " AS build" in each)
CUSTOM_HOOK = "hatch_build.py"
"""What hatchling runs for a custom hook that names no file."""


def needed() -> set[str]:
    """Files and folders of this directory without which no wheel is built."""
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    found = {
        "pyproject.toml",
        "LICENSE",
        "NOTICE",
        PROJECT["project"]["readme"],
        *wheel["packages"],
    }
    found.add(Path(PROJECT["tool"]["hatch"]["version"]["path"]).parts[0])
    hook = wheel["hooks"]["custom"]
    return found | {hook.get("path", CUSTOM_HOOK)}


def test_build_stage_copies_what_the_build_reads() -> None:
    copied = {
        name
        for line in re.findall(r"^COPY (.+)$", BUILD, re.MULTILINE)
        for name in line.split()[:-1]
    }
    assert needed() - copied == set()
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_what_is_copied_is_sent_to_the_builder() -> None:
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    assert rules[0] == "*", "nothing goes along but what is named"
    assert needed() - {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == set()
    assert "**/*.so" in rules, "modules compiled outside do not fit the image's Python"


def test_image_without_compiled_modules_is_not_built() -> None:
    assert "gcc libc6-dev" in BUILD
    environment, _, rest = BUILD.partition("ROCKETPY_COMPILED=1")
    assert "pip wheel" not in environment
    assert "pip wheel" in rest
    assert not any("gcc" in stage for stage in STAGES if stage != BUILD)


def test_image_is_pinned_licensed_and_checked() -> None:
    bases = {stage.split()[0] for stage in STAGES[1:]}
    [base] = bases
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base), "a patch release, not a moving tag"
    final = STAGES[-1]
    assert "COPY LICENSE NOTICE " in final
    assert "HEALTHCHECK" in final
    assert '"rocketpy", "cluster", "ping", "--ready"' in final


def test_image_of_etcd_is_a_stage_beside_the_final_one() -> None:
    [etcd] = [stage for stage in STAGES if " AS etcd" in stage]
    assert "etcd-server etcd-client" in etcd
    assert "USER rocketpy" in etcd, "not root"
    assert "etcd" not in STAGES[-1]
