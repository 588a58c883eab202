"""A plan's pieces: read apart, in another process, in any order."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rocketpy.arrow import row_schema
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.plan import Piece, QueuePiece, plan, read
from rocketpy.store.scan.request import ScanRequest
from tests.unit.store.scan.kit import Written

WANTED = ScanRequest(schema=row_schema(columns=["topic", "queueId", "queueOffset", "body"]))


@pytest.fixture
def live(tmp_path: Path) -> Any:
    """A store in use, with entries on disk and in memory."""
    store = Written(tmp_path)
    store.fill("T", 200)
    store.flush()
    store.fill("T", 30)
    yield store
    store.close()


def rows(root: Path, *pieces: Piece) -> list[tuple[object, ...]]:
    directory = StoreDirectory(root)
    batches = [batch for piece in pieces for batch in read(directory, WANTED, piece)]
    table = pa.Table.from_batches(batches, WANTED.schema.arrow)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_pieces_are_sent_to_others_and_give_the_same_each_time(scan: Any, live: Written) -> None:
    pieces = plan(StoreDirectory(live.root), WANTED, scan)

    sent = pickle.loads(pickle.dumps(pieces))
    before = rows(live.root, *pieces)
    live.fill("T", 50)
    live.flush()

    assert rows(live.root, *sent) == before
    assert sorted(rows(live.root, *reversed(sent))) == sorted(before)
    assert len(before) == 230


@pytest.mark.parametrize("cut", [1, 50, 99, 100, 101, 114])
def test_piece_in_two_parts(cut: int, live: Written) -> None:
    (piece, _) = plan(StoreDirectory(live.root), WANTED, "queue")
    assert isinstance(piece, QueuePiece)
    assert (piece.start, piece.end) == (0, 115)
    assert len(piece.tail) == 15 * 20

    first, second = piece.part(0, cut), piece.part(cut, 115)

    assert rows(live.root, first) + rows(live.root, second) == rows(live.root, piece)
    assert len(rows(live.root, first)) == cut


def test_places_of_keys_are_a_piece(live: Written) -> None:
    wanted = ScanRequest(keys=("k7", "k8"), schema=WANTED.schema)

    (piece,) = plan(StoreDirectory(live.root), wanted, "index")

    assert len(rows(live.root, piece)) == 4
    assert plan(StoreDirectory(live.root), ScanRequest(keys=("none",)), "index") == []
