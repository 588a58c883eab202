"""How the data pipeline measures beside what bounds it: ratios, in one run, rounds interleaved.

    frame.py    `Ratio`: two rates and the goal for their ratio; rounds, medians, table, results
    stores.py   store directories of so many messages, made quickly
    session.py  the Spark session, and the source that does no work: the ceiling
    reads.py    B1 | decoding.py  B5, B6

Another measure is a module with a function `ratios() -> list[Ratio]`, named in `__main__.MODULES`.
"""
