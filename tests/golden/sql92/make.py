"""Regenerates cases.jsonl: results of Apache 5.4.0 for generated conditions.

python -m tests.golden.sql92.make
"""

import json
from pathlib import Path

from tests.golden.sql92.generator import cases
from tests.interop.oracle.jar import ask, word

FILE = Path(__file__).with_name("cases.jsonl")


def question(condition: str, properties: dict[str, str]) -> str:
    """Format a condition and a message as a question to the jar."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return f"sql {word(condition)} {word(text)}"


if __name__ == "__main__":
    made = list(cases(seed=5, count=1_500))
    answers = ask(question(*case) for case in made)
    lines = [
        json.dumps([*case, answer], ensure_ascii=False)
        for case, answer in zip(made, answers, strict=True)
    ]
    FILE.write_text("\n".join(lines) + "\n")
