"""Cost of a message in a client's process: RocketPy beside aiokafka and nats-py, in one run.

__main__.py   starts the servers, runs rows in turn, prints and keeps the table
rows.py       what is measured, what it may cost, and what it costs
report.py     the table
servers.py    our broker, Kafka's (Maven) and a NATS server (a wheel)
measured.py   one row in a separate process: `python -m bench.sdk.measured`
ours.py, aiokafka_client.py, nats_client.py   the rows, one function each
"""
