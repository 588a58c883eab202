"""Reading a store directory without opening it: no lock, no write, no position moves.

For a directory that a broker is writing, and for copies, whole or torn. The way in is
`rocketpy.store.to_arrow`. numpy and pyarrow are needed here, so servers import nothing of this.

    directory.py   what lies where: log files, queues, topics that were deleted, JSON tables
    log.py         the log's files in memory, and where the log ends
    queues.py      entries of a consume queue as arrays; offsets by time and by place
    wanted.py      what a read wants, and how much of it a batch holds
    pieces.py      the plan: pieces that can be read by themselves, and nowhere else than here
    by_queue.py    a piece of a queue -> record batches | by_log.py, by_index.py  the same
    tables.py      offsets, topics and groups as tables
"""
