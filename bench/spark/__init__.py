"""How the data pipeline measures beside what bounds it: ratios, in one run, rounds interleaved.

    frame.py    `Ratio`: two rates and the goal for their ratio; rounds, medians, table, results
    stores.py   store directories of so many messages, made quickly
    session.py  the Spark session, and the source that does no work: the ceiling
    live.py     a broker of ours with a store's messages | kafka.py  a Kafka broker from Maven
    reads.py    B1 to B4 | decoding.py  B5, B6 | archive.py  B7 | sink.py  B8
    memory.py   what Spark's Python workers took at most

Another measure is a module with a function `ratios() -> list[Ratio]`, named in `__main__.MODULES`.
"""
