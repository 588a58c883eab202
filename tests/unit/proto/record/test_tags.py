"""Java's hash of tags and index keys; its values are in the golden tests."""

import pytest

from rocketpy.proto.record import tags


def test_tags_code_without_a_tag():
    assert tags.tags_code(None) == tags.tags_code("") == 0


def test_tag_memory_is_bounded():
    for n in range(tags._CACHE_LIMIT + 10):
        tags.tags_code(f"bounded-{n}")
    assert len(tags._tags_codes) <= tags._CACHE_LIMIT
    assert tags.tags_code("TagA") == 2598919


def test_index_hasher_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(tags, "_CACHE_LIMIT", 100)
    hasher = tags.IndexKeyHasher()
    for n in range(1000):
        key = f"{n:024d}"
        assert hasher.hash(f"T{n}", key) == abs(tags.java_string_hash(f"T{n}#{key}"))
    assert len(hasher._topics) <= 100
    assert len(hasher._prefixes) <= 100
    assert len(hasher._low_pairs) <= 100
    assert len(hasher._high_pairs) <= 100


def test_ids_whose_counter_has_gone_round_keep_few_parts():
    hasher = tags.IndexKeyHasher()
    for n in range(0, 20_000, 7):
        key = f"7F0000010F2A3C1D4E5F{0xA1B2C3 + n // 4:08X}{n * 13 & 0xFFFF:04X}"
        assert hasher.hash("T", key) == abs(tags.java_string_hash(f"T#{key}"))
    assert len(hasher._heads[1]) <= tags._HEADS_LIMIT
    assert len(hasher._low_pairs) <= 256
    assert len(hasher._high_pairs) <= 256


def test_hashes_of_a_run_are_those_of_its_keys():
    hasher = tags.IndexKeyHasher()
    runs = [[f"AC11{n:012X}" for n in range(start, start + 40)] for start in (0, 20, 65_520)]
    runs += [["same"] * 3, ["a", "", "b\u00e9"], [*runs[0], "other"], ["x" * 300] * 2]
    runs += [
        ["0123456789abcd\u00e9f", "0123456789abcdef"],
        ["0123456789abcdef", "0123456789abcd\u00e9f"],
    ]
    runs += [["\u00e9" * 12] * 2, ["short"] * 2, ["1234567"] * 2, ["12345678"] * 2]
    for topic in ("T", "U", "T"):
        for keys in runs:
            wanted = [abs(tags.java_string_hash(f"{topic}#{key}")) for key in keys]
            assert hasher.hash_run(topic, keys) == wanted
            assert hasher.hash_run(topic, keys) == wanted, "remembered parts give the same"


def test_smallest_hash_becomes_zero():
    hasher = tags.IndexKeyHasher()
    hasher.hash("T", "0123456789abcdef")
    topic, heads = hasher._heads
    heads["0123456789ab"], hasher._high_pairs["cd"], hasher._low_pairs["ef"] = 0x80000000, 0, 0
    key = "0123456789abcdef"
    assert hasher.hash(topic, key) == 0
    assert hasher.hash_run(topic, [key, key]) == [0, 0]


@pytest.mark.parametrize("edge", [0, 1 << 31, 1 << 32])
@pytest.mark.parametrize("distance", [-8128, -4200, -4064, -2000, -1, 0, 1, 2000])
def test_run_whose_hashes_cross_the_sign(edge: int, distance: int) -> None:
    hasher = tags.IndexKeyHasher()
    keys = [f"0123456789ab{n:04x}" for n in range(64)] + ["0123456789ab00~~", "0123456789ab00\0\0"]
    for key in keys:
        hasher.hash("T", key)
    _, heads = hasher._heads
    heads["0123456789ab"] = (edge + distance) % (1 << 32)
    hasher._high_pairs["00"] = 0
    assert hasher.hash_run("T", keys) == [hasher.hash("T", key) for key in keys]
