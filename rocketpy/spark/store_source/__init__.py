"""The format `rocketmq.store`: store directories as a source, without a broker.

options.py     what a read takes
plan.py        tasks: pieces of `rocketpy.store.scan`, split where asked
reader.py      Spark's reader of messages | tables.py  of offsets, topics and groups
conditions.py  filters that Spark hands down
ahead.py       decoding beside writing to Spark
"""
