"""Sources of secrets: options name where a secret is, so that no plan or log contains it.

A source is resolved where the secret is used: in the planner and in each task.
"""

import importlib
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketpy.errors import ConfigError

_KINDS: Final = ("env", "file", "scope")


class SecretSource(NamedTuple):
    """Location of a secret.

    Attributes:
        option: name of the option, for errors.
        kind: `env`, `file` or `scope`.
        name: of the variable, of the file, or `SCOPE/KEY` of a secret scope of Databricks.
    """

    option: str
    kind: str
    name: str

    def read(self) -> str:
        """Return the secret, without a line break at its end.

        Raises:
            ConfigError: it does not exist in this process, or is empty.
        """
        found = {"env": self._of_environment, "file": self._of_file, "scope": self._of_scope}
        secret = found[self.kind]().rstrip("\r\n")
        if not secret:
            raise ConfigError(f"{self.kind}:{self.name} is empty", key=self.option)
        return secret

    def _of_environment(self) -> str:
        if self.name not in os.environ:
            raise ConfigError(
                f"environment variable {self.name} is not set in this process: executors need it "
                f"too (spark.executorEnv.{self.name}, or the environment of the cluster)",
                key=self.option,
            )
        return os.environ[self.name]

    def _of_file(self) -> str:
        try:
            return Path(self.name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"file {self.name} cannot be read: {error}. Driver and executors need it under "
                "this path",
                key=self.option,
            ) from None

    def _of_scope(self) -> str:
        scope, _, key = self.name.partition("/")
        try:
            runtime: Any = importlib.import_module("databricks.sdk.runtime")
        except ImportError:
            raise ConfigError(
                "secret scopes exist on Databricks only (package databricks-sdk): use env:NAME or "
                "file:PATH",
                key=self.option,
            ) from None
        return str(runtime.dbutils.secrets.get(scope=scope, key=key))


def secret_source(option: str, text: str) -> SecretSource:
    """Parse `env:NAME`, `file:PATH` or `scope:SCOPE/KEY`.

    Raises:
        ValueError: the text is invalid; the message ends the sentence "option: ...".
    """
    kind, _, name = text.strip().partition(":")
    if kind not in _KINDS or not name:
        raise ValueError("is not env:NAME, file:PATH or scope:SCOPE/KEY")
    if kind == "scope" and not all(name.partition("/")):
        raise ValueError("is not scope:SCOPE/KEY")
    return SecretSource(option, kind, name)
