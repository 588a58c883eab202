"""Transactional messages: half messages, commit and rollback, and the check-back.

- `half_message`: turns a transactional message into a half message, and back.
- `end_transaction`: commit and rollback.
- `ledger`: the states of half messages, in memory.
- `op_messages`: the same on disk, in batched op messages.
- `check_back`: finds undecided half messages and asks their producers.
- `fast_path`: the interface of the compiled send path.
- `requests`: the adapter of the remoting protocol.
- `feature`: builds all of it.

A half message is decided in three steps, each only after the one before is as durable as the
store's mode requires: the committed message is stored, an op message names the half, the progress
of the check-back advances past it. A crash between two steps makes the half undecided again: its
producer is asked, and a commit may be stored twice. It is never lost, and a rolled-back message is
never committed.

Source: org.apache.rocketmq.broker.transaction (5.4.0).
"""
