from rocketpy.remoting.boss import ConnectionTally


def test_total_limit() -> None:
    tally = ConnectionTally(2, 0)
    assert tally.admit("1.1.1.1") is None
    assert tally.admit("1.1.1.1") is None
    assert "serverMaxConnections" in (tally.admit("2.2.2.2") or "")
    tally.release("1.1.1.1")
    assert tally.admit("2.2.2.2") is None
    assert tally.count == 2


def test_limit_by_address() -> None:
    tally = ConnectionTally(0, 1)
    assert tally.admit("1.1.1.1") is None
    assert "1.1.1.1" in (tally.admit("1.1.1.1") or "")
    assert tally.admit("2.2.2.2") is None
    tally.release("1.1.1.1")
    assert tally.admit("1.1.1.1") is None


def test_no_limits() -> None:
    tally = ConnectionTally(0, 0)
    assert [tally.admit("1.1.1.1") for _ in range(1000)] == [None] * 1000
    for _ in range(1000):
        tally.release("1.1.1.1")
    assert tally.count == 0
    assert tally._by_ip == {}
