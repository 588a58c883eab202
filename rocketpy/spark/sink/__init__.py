"""The sink of the format `rocketmq`: rows of a batch or of a stream become messages.

Append only: a topic cannot be overwritten. A task ends once brokers have acknowledged all of its
rows; what it returns lists where they are. A task that is repeated, or a lost acknowledgement, can
store a row twice; both copies have the same property `_spark_id`, by which
`rocketpy.spark.dedup` finds them.

``options.py``     what a user may set
``columns.py``     which column is what: checked on the driver, before any task starts
``rows.py``        record batches -> messages, and rows that can be none
``requests.py``    messages -> requests: batches, single ones, one line for each ordered queue
``sender.py``      requests -> acknowledgements, within bounds of number and bytes
``worker.py``      one client a worker process
``writer.py``      what Spark calls
"""

from rocketpy.spark.sink.writer import batch_writer, stream_writer

__all__ = ["batch_writer", "stream_writer"]
