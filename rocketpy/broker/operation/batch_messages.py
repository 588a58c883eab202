"""What a batch brings: its messages by columns, or why one of them cannot be stored.

Source: SendMessageProcessor.sendBatchMessage, MessageDecoder.decodeMessages (5.4.0).
"""

from rocketpy.broker.operation.property_shapes import PropertyScanner, shape_of
from rocketpy.broker.operation.put_transforms import refuse_in_batch
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.proto.message import split_batch
from rocketpy.proto.properties import PROPERTY_KEYS, PROPERTY_UNIQ_KEY, parse_properties
from rocketpy.store.results import BatchColumns, BatchEntry


def batch_messages(scanner: PropertyScanner, body: bytes) -> BatchColumns | Refusal:
    """Take a batch apart, or say why one of its messages cannot be stored.

    Args:
        scanner: reads properties.
        body: of the request.

    Raises:
        BadBodyError: it is no batch.
    """
    flags, bodies, properties = split_batch(body)
    scanned = scanner.scan_columns(properties) if bodies else None
    if scanned is not None and scanned.is_plain:
        codes, uniq_keys = scanned.tags_codes, scanned.uniq_keys
        return BatchColumns(bodies, properties, flags, codes, uniq_keys, scanned.keys, scanned.tags)
    entries: list[BatchEntry] = []
    for flag, message_body, given in zip(flags, bodies, properties, strict=True):
        entry = _entry(scanner, flag, message_body, given)
        if isinstance(entry, Refusal):
            return entry
        entries.append(entry)
    return BatchColumns.of(entries)


def _entry(scanner: PropertyScanner, flag: int, body: bytes, given: bytes) -> BatchEntry | Refusal:
    """One message of a batch whose messages differ in more than their id."""
    scanned = scanner.scan(given)
    if scanned is not None and scanned[1].is_plain:
        uniq_key, shape, keys = scanned
    else:
        properties = parse_properties(given)
        refused = refuse_in_batch(properties)
        if refused is not None:
            return refused
        uniq_key = properties.get(PROPERTY_UNIQ_KEY)  # type: ignore[assignment] # optional
        shape, keys = shape_of(properties), properties.get(PROPERTY_KEYS)
    return BatchEntry(body, given, flag, shape.tags_code, uniq_key, keys, shape.tags)
