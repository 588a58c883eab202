"""Results of Apache's BloomFilter (from the 5.4.0 jar)."""

import pytest

from rocketpy.sql92.bloom import BloomFilter


def test_bits_of_a_group_are_those_in_apaches_file() -> None:
    data = BloomFilter(20, 32).data_of("vec_sql_group", "VecSql")
    assert (data.bit_count, data.positions) == (112, (12, 93, 81))


@pytest.mark.parametrize(
    ("error_percent", "groups", "text", "bit_count", "positions"),
    [
        (20, 32, "", 112, (0, 0, 0)),
        (1, 1000, "g#T", 9592, (3458, 6716, 7708, 7125, 3049, 1783, 8391)),
        (10, 128, "订单#é", 616, (57, 603, 279, 381)),
        (50, 8, "a-rather-long-consumer-group-name#AndATopicNameBeyondSixteenBytes", 16, (10,)),
        (90, 1, "%RETRY%x#y", 8, (5,)),
    ],
)
def test_shape_and_positions(
    error_percent: int, groups: int, text: str, bit_count: int, positions: tuple[int, ...]
) -> None:
    bloom = BloomFilter(error_percent, groups)
    assert (bloom.bit_count, bloom.hash_count) == (bit_count, len(positions))
    assert bloom.positions_of(text) == positions
