import pyarrow as pa
import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.sink.rate_limit import paced, rate_of, rates


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def batches(*sizes: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"n": list(range(size))}) for size in sizes]


def test_paced_yields_all_rows_at_the_rate() -> None:
    time = Time()
    came = [
        (time.now - 100, batch.num_rows)
        for batch in paced(batches(25, 3, 0, 12), 100, now=lambda: time.now, sleep=time.sleep)
    ]
    assert [rows for _, rows in came] == [10, 10, 5, 3, 10, 2]
    assert [round(at, 6) for at, _ in came] == [0, 0.1, 0.2, 0.25, 0.28, 0.38]


def test_paced_after_a_pause_does_not_exceed_the_rate() -> None:
    time = Time()
    rows = paced(batches(20, 20), 100, now=lambda: time.now, sleep=time.sleep)
    came = []
    for batch in rows:
        came.append((round(time.now - 100, 6), batch.num_rows))
        if len(came) == 2:
            time.now += 60
    assert came == [(0, 10), (0.1, 10), (60.1, 10), (60.2, 10)]


def test_paced_below_ten_rows_a_second_keeps_the_rate() -> None:
    time = Time()
    list(paced(batches(5), 0.5, now=lambda: time.now, sleep=time.sleep))
    assert time.now - 100 == 8


def test_rate_of_is_that_of_every_task_or_from_a_list() -> None:
    assert rates("300") == (300.0,)
    assert rates("1, 0,2.5") == (1.0, 0.0, 2.5)
    assert [rate_of((300.0,), each) for each in range(3)] == [300.0] * 3
    assert [rate_of((1.0, 0.0, 2.5), each) for each in range(3)] == [1.0, 0.0, 2.5]
    with pytest.raises(ConfigError, match="rowsPerSecond: has 2 rates, and none for task 2"):
        rate_of((1.0, 2.0), 2)
    for wrong in ("", "fast", "0", "-1", "inf", "1,,2", "nan"):
        with pytest.raises(ValueError, match="is not"):
            rates(wrong)
