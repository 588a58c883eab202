import pyarrow as pa

from rocketpy.spark.jobs.rate_limit import paced


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
