"""The format `rocketmq.store`, found by Spark, which imports every package named `pyspark_*`.

Nothing but pyspark is imported at the top: an import that fails here would cost the user every
other Python data source.
"""
