"""Source of the format `rocketmq`: batch and streaming reads of topics."""
