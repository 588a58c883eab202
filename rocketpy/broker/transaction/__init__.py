"""Transactional messages: half messages, their ends, and the check-back of those without one.

    half.py         a half message on its way in; what it is stored as
    end.py          commit and rollback
    ledger.py       which halves are decided, in memory
    op_messages.py  the same on disk: op messages, batched
    check_back.py   finds halves that nobody has decided
    ask.py          asks a producer about one
    requests.py     the adapter of the remoting protocol
    feature.py      builds all of it

A half message is decided in three steps, each only after the one before is as safe as the store's
mode asks for: the committed message is stored, the op message names the half, the progress of the
check passes it. A crash in between makes the half undecided again: its producer is asked, and a
commit may be there twice. It is never lost, and what was rolled back is never committed.

Source: org.apache.rocketmq.broker.transaction (5.4.0).
"""
