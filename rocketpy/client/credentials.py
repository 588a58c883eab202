"""Credentials of a client: access key and secret, and the signature of each request.

Source: SessionCredentials, AclClientRPCHook, AclUtils, AclSigner (5.4.0).
"""

import base64
import hmac
import os
from dataclasses import dataclass, field, fields
from typing import Final

from rocketpy.errors import ConfigError
from rocketpy.proto.wire.command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE: Final = "Signature"

ACCESS_KEY_VARIABLE: Final = "ROCKETPY_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETPY_SECRET_KEY"  # noqa: S105 - the name of a variable
SECURITY_TOKEN_VARIABLE: Final = "ROCKETPY_SECURITY_TOKEN"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account of a cluster with access control; nothing of it but the key's name is ever shown.

    Attributes:
        access_key: the name of the account.
        secret_key: what requests are signed with; never sent.
        security_token: of a temporary account; empty for others.

    Raises:
        ConfigError: one of the keys is empty, or no text.

    Example:
        >>> Credentials("shop", "12345678")
        Credentials(access_key='shop')
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise ConfigError("must not be empty", key=name)
        for each in fields(self):
            if not isinstance(getattr(self, each.name), str):
                raise ConfigError("must be a text", key=each.name)


def find_credentials(given: Credentials | None) -> Credentials | None:
    """Return the credentials given, else those of the environment, else None.

    The environment has them in `ROCKETPY_ACCESS_KEY`, `ROCKETPY_SECRET_KEY` and, for temporary
    accounts, `ROCKETPY_SECURITY_TOKEN`.

    Raises:
        ConfigError: the environment has one key of the two.
    """
    if given is not None:
        return given
    access_key = os.environ.get(ACCESS_KEY_VARIABLE, "")
    secret_key = os.environ.get(SECRET_KEY_VARIABLE, "")
    if not access_key and not secret_key:
        return None
    for name, value in ((ACCESS_KEY_VARIABLE, access_key), (SECRET_KEY_VARIABLE, secret_key)):
        if not value:
            raise ConfigError("is missing; the other key is in the environment", key=name)
    return Credentials(access_key, secret_key, os.environ.get(SECURITY_TOKEN_VARIABLE, ""))


class RequestSigner:
    """Signs each request of a client; a hook of its connections.

    Args:
        credentials: whose.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._key = hmac.new(credentials.secret_key.encode(), digestmod="sha1")

    def before_request(self, address: str, command: RemotingCommand) -> None:  # noqa: ARG002
        """Add the account and the signature of all fields and the body."""
        fields = command.ext_fields
        fields[ACCESS_KEY] = self._credentials.access_key
        if self._credentials.security_token:
            fields[SECURITY_TOKEN] = self._credentials.security_token
        fields.pop(SIGNATURE, None)  # of an attempt before
        signed = self._key.copy()
        signed.update("".join([fields[name] for name in sorted(fields)]).encode())
        signed.update(command.body)
        fields[SIGNATURE] = base64.b64encode(signed.digest()).decode()

    def after_response(
        self, address: str, command: RemotingCommand, response: RemotingCommand
    ) -> None:
        """Nothing to do."""
