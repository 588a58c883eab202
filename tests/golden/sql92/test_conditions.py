"""Results of 1,500 conditions equal those of Apache 5.4.0 (see make.py)."""

import json
from pathlib import Path

from tests.golden.sql92.answers import answer

CASES = Path(__file__).with_name("cases.jsonl")


def test_conditions_match_the_results_of_apache() -> None:
    lines = CASES.read_text().splitlines()
    assert len(lines) == 1_500
    different = []
    for line in lines:
        expression, properties, expected = json.loads(line)
        if (got := answer(expression, properties)) != expected:
            different.append((expression, properties, expected, got))
    assert not different
