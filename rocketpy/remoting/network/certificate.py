"""Time at which a certificate expires, read from its file.

The `ssl` module decodes certificates of peers only, so the few fields up to it are read here.

Source: RFC 5280 (4.1), X.690 (DER).
"""

import re
import ssl
from datetime import UTC, datetime
from typing import Final

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_VERSION: Final = 0xA0
_FORMATS: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}


def expires_ms(pem: str) -> int | None:
    """Return when the first certificate of a chain expires, ms since 1970.

    Args:
        pem: text of the file.

    Returns:
        The earliest time of all certificates; None if one cannot be read.
    """
    try:
        times = [_not_after(ssl.PEM_cert_to_DER_cert(each)) for each in _PEM.findall(pem)]
    except (ValueError, LookupError):
        return None
    return min(times, default=None)


def _not_after(der: bytes) -> int:
    """Return the end of the validity of a certificate; raises ValueError or LookupError."""
    at, _ = _open(der, 0, _SEQUENCE)  # Certificate
    at, _ = _open(der, at, _SEQUENCE)  # TBSCertificate
    if der[at] == _VERSION:
        _, at = _open(der, at, _VERSION)
    for tag in (_INTEGER, _SEQUENCE, _SEQUENCE):  # serial number, signature, issuer
        _, at = _open(der, at, tag)
    at, _ = _open(der, at, _SEQUENCE)  # Validity
    _, at = _open(der, at, der[at])  # notBefore
    start, end = _open(der, at, der[at])
    text = der[start:end].decode("ascii")
    time = datetime.strptime(text, _FORMATS[der[at]]).replace(tzinfo=UTC)
    return int(time.timestamp() * 1_000)


def _open(der: bytes, at: int, tag: int) -> tuple[int, int]:
    """Return start and end of the content of an element."""
    if der[at] != tag:
        raise ValueError(f"the element at {at} has tag {der[at]}, not {tag}")
    length, start = der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(der[start : start + count]), start + count
    if start + length > len(der):
        raise ValueError(f"the element at {at} is longer than the certificate")
    return start, start + length
