"""Benchmarks of the data pipeline: ratios to its upper bounds, in interleaved rounds of one run.

    frame.py    `Ratio`: two rates and the goal for their ratio; rounds, medians, table, results
    stores.py   store directories with a number of messages, created quickly
    session.py  the Spark session, and a source without work: the ceiling
    live.py     a RocketPy broker with a store's messages | kafka.py  a Kafka broker from Maven
    reads.py    B1 to B4 | decoding.py  B5, B6 | archive.py  B7 | sink.py  B8
    memory.py   peak memory of Spark's Python workers

A new measure is a module with a function `ratios() -> list[Ratio]`, named in `__main__.MODULES`.
"""

QUEUES = 2
"""Queues of a topic here, and partitions of Kafka's."""
