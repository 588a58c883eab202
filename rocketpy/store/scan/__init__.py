"""Read-only scans of a store directory: without lock, writes or changes of offsets.

A scan reads the directory of a running broker, and complete or truncated copies. The entry point is
`rocketpy.store.to_arrow`. The package needs numpy and pyarrow, so servers do not import it.

    directory.py   layout of a directory: log files, queues, deleted topics, JSON tables
    log.py         mapped files of the log, and the end of the log
    queues.py      entries of a consume queue as arrays; offsets by time and by position
    request.py     the request: selection of messages and limits of a batch
    plan.py        the plan: independent pieces of a read
    by_queue.py    a piece of a queue -> record batches | by_log.py, by_index.py  the same
    tables.py      offsets, topics and groups as tables
"""
