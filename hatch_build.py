"""Compiles hot paths when a C compiler is there; without one RocketPy is pure Python.

ROCKETPY_PURE=1 leaves it out, ROCKETPY_COMPILED=1 fails instead of leaving it out.
ROCKETPY_STABLE_ABI=1 makes what loads in every later Python, too, as a wheel for many machines
should; else it is made for the interpreter at hand, which asks less of Python's functions.
docs/decisions/0008-a-compiled-path-for-plain-sends.md
docs/decisions/0009-a-compiled-decoder-for-arrow.md
docs/decisions/0010-a-compiled-codec-for-sends.md
docs/decisions/0011-a-compiled-decoder-for-received-messages.md
"""

import importlib.util
import os
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OLDEST_PYTHON = (3, 11)
"""What is built against the stable ABI of this one loads in all later ones."""


class CompiledPaths(BuildHookInterface[Any]):
    """Adds compiled modules to a wheel, or puts them beside their sources for an editable one."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell the builder what the wheel fits."""
        if self.target_name != "wheel" or os.environ.get("ROCKETPY_PURE") == "1":
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="rocketpy-build-")
        try:
            built = self._compile(Path(self._scratch.name))
        except (Exception, SystemExit) as error:  # whatever is missing or fails: it is optional
            if os.environ.get("ROCKETPY_COMPILED") == "1":
                told = f"ROCKETPY_COMPILED=1, but sends cannot be compiled: {error}"
                raise SystemExit(told) from error
            self.app.display_warning(f"plain sends are not compiled, RocketPy is pure: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = self._tag()
        for module, file in built.items():
            folder, name = module.rpartition(".")[0].replace(".", "/"), module.rpartition(".")[2]
            if version == "editable":
                beside = Path(self.root, folder)
                for old in beside.glob(f"{name}.*.so"):
                    old.unlink()
                (beside / file.name).write_bytes(file.read_bytes())
            else:
                build_data["force_include"][str(file)] = f"{folder}/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what compiling left; the wheel is written."""
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()

    def _tag(self) -> str:
        tag: str = self.build_config.builder.get_best_matching_tag()
        if _is_stable():
            return f"cp{OLDEST_PYTHON[0]}{OLDEST_PYTHON[1]}-abi3-{tag.rpartition('-')[2]}"
        return tag

    def _sources_of(self, module: str) -> str:
        """Return what the module says that it was made of, as a text in C."""
        path = Path(self.root, "rocketpy", "compiled_module.py")
        spec = importlib.util.spec_from_file_location("compiled_module", path)
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        checksum_of: Callable[[Path], bytes] = found.checksum_of
        return f'"{checksum_of(_source_of(self.root, module)).decode()}"'

    def _compile(self, scratch: Path) -> dict[str, Path]:
        """Return the file of each module."""
        from Cython.Build import cythonize  # noqa: PLC0415 - optional
        from setuptools import Distribution, Extension  # noqa: PLC0415 - optional
        from setuptools.command.build_ext import build_ext  # noqa: PLC0415 - optional

        stable = _is_stable()
        version = f"0x{OLDEST_PYTHON[0]:02X}{OLDEST_PYTHON[1]:02X}0000"
        modules = _modules(Path(self.root))
        extensions = [
            Extension(
                module,
                [str(_source_of(self.root, module))],
                # A function that is not declared is not there either: better told of now.
                extra_compile_args=["-O3", "-g0", "-Werror=implicit-function-declaration"],
                define_macros=[("ROCKETPY_SOURCES", self._sources_of(module))]
                + ([("Py_LIMITED_API", version)] if stable else []),
                py_limited_api=stable,
            )
            for module in modules
        ]
        extensions = cythonize(extensions, build_dir=str(scratch), quiet=True)
        command = build_ext(Distribution({"ext_modules": extensions}))
        command.build_lib = command.build_temp = str(scratch)
        command.ensure_finalized()
        command.run()
        return {module: Path(command.get_ext_fullpath(module)) for module in modules}


def _modules(root: Path) -> list[str]:
    """Return the full name of every module that is written in Cython."""
    files = sorted(Path(root, "rocketpy").rglob("*.pyx"))
    return [".".join(file.relative_to(root).with_suffix("").parts) for file in files]


def _source_of(root: str, module: str) -> Path:
    return Path(root, *module.split(".")).with_suffix(".pyx")


def _is_stable() -> bool:
    """Whether the stable ABI is asked for and there; an interpreter without the GIL has none."""
    is_wanted = os.environ.get("ROCKETPY_STABLE_ABI") == "1"
    return is_wanted and not sysconfig.get_config_var("Py_GIL_DISABLED")
