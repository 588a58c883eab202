"""Format `rocketmq.store`: store directories as a source, without a broker.

options.py     options of a read
plan.py        tasks: pieces of `rocketpy.store.scan`, split on request
reader.py      reader of messages | narrowing_reader.py  with conditions
tables.py      reader of offsets, topics and groups
conditions.py  filters that Spark pushes down
"""
