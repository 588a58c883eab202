"""Compiles the plain send path when a C compiler is there; without one RocketPy is pure Python.

ROCKETPY_PURE=1 leaves it out, ROCKETPY_COMPILED=1 fails instead of leaving it out.
docs/decisions/0008-a-compiled-path-for-plain-sends.md
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "rocketpy.broker.processor._plain_sends"


class CompiledSends(BuildHookInterface[Any]):
    """Adds the compiled module to a wheel, or puts it beside its source for an editable one."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell the builder that the wheel is for one platform."""
        if self.target_name != "wheel" or os.environ.get("ROCKETPY_PURE") == "1":
            return
        try:
            built = self._compile(in_place=version == "editable")
        except (Exception, SystemExit) as error:  # whatever is missing or fails: it is optional
            if os.environ.get("ROCKETPY_COMPILED") == "1":
                raise
            self.app.display_warning(f"plain sends are not compiled, RocketPy is pure: {error}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version != "editable":
            package = MODULE.rpartition(".")[0].replace(".", "/")
            build_data["force_include"][str(built)] = f"{package}/{built.name}"

    def _compile(self, *, in_place: bool) -> Path:
        from Cython.Build import cythonize  # noqa: PLC0415 - optional
        from setuptools import Distribution, Extension  # noqa: PLC0415 - optional
        from setuptools.command.build_ext import build_ext  # noqa: PLC0415 - optional

        source = Path(self.root, *MODULE.split(".")).with_suffix(".pyx")
        scratch = tempfile.mkdtemp(prefix="rocketpy-build-")
        extension = Extension(MODULE, [str(source)], extra_compile_args=["-O3", "-g0"])
        extensions = cythonize([extension], build_dir=scratch, quiet=True)
        command = build_ext(Distribution({"ext_modules": extensions}))
        command.build_lib = command.build_temp = scratch
        command.ensure_finalized()
        command.run()
        built = Path(command.get_outputs()[0])
        if not in_place:
            return built
        for old in source.parent.glob(f"{source.stem}.*.so"):
            old.unlink()
        beside = source.parent / built.name
        beside.write_bytes(built.read_bytes())
        return beside
