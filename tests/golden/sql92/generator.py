"""Random conditions and properties: valid, partly valid and invalid ones."""

import random
from collections.abc import Iterator

NAMES = ["a", "b", "c", "_x1", "$p", "Region", "missing"]
TEXTS = ["'x'", "'eu'", "'it''s'", "''", "'5'", "'true'", "'x y'", "'é'"]
WHOLE = [
    "0",
    "1",
    "5",
    "-3",
    "10L",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "007",
    "5l",
]
DECIMALS = ["1.5", "5.", ".5", "1e3", "5.0E-2", "0.0", "1e400", "1e-400", "-2.5"]
RELATIONS = ["=", "<>", "<", ">", "<=", ">="]
SOUP = [
    "AND",
    "or",
    "NOT",
    "(",
    ")",
    "=",
    "<>",
    ">",
    "a",
    "b",
    "'x'",
    "1",
    "IS",
    "NULL",
    "IN",
    ",",
    "BETWEEN",
    "2.5",
    "+",
    "-",
    "TRUE",
    "contains",
    "--",
    "/* c */",
    "@",
    "'",
    "-- c\n",
    "!=",
]
VALUES = [
    "5",
    "x",
    "",
    "eu",
    "true",
    "TRUE",
    "1.5",
    "NaN",
    "-0.0",
    "0",
    "2147483648",
    "+5",
    " 5",
    "5 ",
    "1e3",
    "it's",
    "0x1p3",
    "Infinity",
    "-3",
    "1_000",
    "\uff15",
    "5f",
    "9223372036854775807",
    "x y",
    "é",
]


def cases(seed: int, count: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Return a number of conditions, each with the properties of a message."""
    rng = random.Random(seed)
    for _ in range(count):
        kind = rng.random()
        if kind < 0.12:
            condition = " ".join(rng.choice(SOUP) for _ in range(rng.randint(1, 9)))
        else:
            condition = _spaced(_any(rng, rng.randint(0, 3)), rng)
        if kind > 0.95:
            condition += rng.choice(
                [" garbage", " )", " 'open", " @", " AND", " b = 2", " -- end\n"]
            )
        names = rng.sample(NAMES[:-1], rng.randint(0, 5))
        yield condition, {name: rng.choice(VALUES) for name in names}


def _spaced(condition: str, rng: random.Random) -> str:
    return (
        condition.replace(" ", rng.choice([" ", " ", "  ", "\n", "\t"]))
        if rng.random() < 0.1
        else condition
    )


def _any(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth and kind < 0.45:
        joined = [_any(rng, depth - 1) for _ in range(rng.randint(2, 3))]
        return rng.choice([" AND ", " or ", " Or ", " and "]).join(joined)
    if depth and kind < 0.6:
        return f"({_any(rng, depth - 1)})"
    if depth and kind < 0.72:
        return f"NOT {rng.choice(['({})', '{}'])}".format(_any(rng, depth - 1))
    return _simple(rng)


def _simple(rng: random.Random) -> str:
    negation = rng.choice(["", "", "NOT "])
    kind = rng.randrange(12)
    left = _operand(rng) if rng.random() < 0.2 else rng.choice(NAMES)
    if kind < 5:
        chain = f" {rng.choice(RELATIONS)} {_operand(rng)}" if rng.random() < 0.06 else ""
        return f"{left} {rng.choice(RELATIONS)} {_operand(rng)}{chain}"
    if kind == 5:
        return f"{left} {negation}BETWEEN {_operand(rng)} AND {_operand(rng)}"
    if kind == 6:
        texts = [
            rng.choice(TEXTS if rng.random() < 0.95 else WHOLE) for _ in range(rng.randint(1, 6))
        ]
        return f"{left} {negation}IN ({', '.join(texts)})"
    if kind == 7:
        return f"{left} IS {negation}NULL"
    if kind == 8:
        return rng.choice([left, "TRUE", "false", "NULL", f"-{left}", f"+{left}"])
    if kind == 9:
        return f"{left} = {rng.choice(['TRUE', 'False', 'NULL'])}"
    word = rng.choice(["CONTAINS", "startswith", "EndsWith"])
    return f"{left} {negation}{word} {rng.choice(TEXTS if rng.random() < 0.95 else WHOLE)}"


def _operand(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(WHOLE)
    if kind < 0.6:
        return rng.choice(DECIMALS)
    if kind < 0.75:
        return rng.choice(TEXTS)
    if kind < 0.9:
        return rng.choice(NAMES)
    if kind < 0.95:
        return rng.choice(["TRUE", "FALSE", "NULL"])
    return rng.choice(
        [
            "-5",
            "+5",
            "- -5",
            "-a",
            "-(a)",
            "(5)",
            "-TRUE",
            "-(a > 1)",
            "-2147483648L",
            "(a)",
            "-'5'",
        ]
    )
