"""Topics and store directories as sources and sinks of PySpark (Python Data Source API).

Needs the extra `rocketpy[spark]`. Spark finds the formats `rocketmq` and `rocketmq.store` by itself
through the packages `pyspark_rocketmq` and `pyspark_rocketmq_store`.
"""
