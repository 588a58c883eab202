"""Sink of the format `rocketmq`: writes rows of a batch or stream as messages.

The sink only appends: a topic cannot be overwritten. A task ends when brokers have acknowledged
all of its rows; its result lists their offsets. A repeated task or a lost acknowledgement may store
a row twice; both copies have the same property `_spark_id`, so `rocketpy.spark.dedup` can remove
one.

`options.py`     options of users
`columns.py`     roles of columns, checked on the driver before any task starts
`rows.py`        record batches -> messages, and rows that are not valid messages
`requests.py`    messages -> requests: batches, single messages, a line for each ordered queue
`sender.py`      requests -> acknowledgements, within bounds of number and bytes
`worker.py`      the client of a worker process
`writer.py`      writers for Spark
"""

from rocketpy.spark.sink.writer import batch_writer, stream_writer

__all__ = ["batch_writer", "stream_writer"]
