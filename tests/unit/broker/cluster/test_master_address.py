"""Addresses of a slave's master."""

from rocketpy.broker.cluster.master_address import MasterAddress, MasterAddresses


def test_master_address_of_the_name_servers_is_taken_and_kept_while_there_is_none() -> None:
    master = MasterAddress()
    calls: list[MasterAddresses] = []
    master.on_change.append(lambda: calls.append(master.known))
    assert not master.is_known
    master.registered(None, None)
    master.registered("10.0.0.1:10911", "10.0.0.1:10912")
    master.registered("10.0.0.1:10911", "10.0.0.1:10912")
    master.registered("", "")
    assert master.known == ("10.0.0.1:10911", "10.0.0.1:10912")
    assert calls == [master.known]


def test_master_address_configured_ha_address_wins_and_names_the_ordinary_port() -> None:
    master = MasterAddress("10.0.0.9:7001")
    assert master.known == ("10.0.0.9:7000", "10.0.0.9:7001")
    master.registered("10.0.0.1:10911", "10.0.0.1:10912")
    assert master.known == ("10.0.0.1:10911", "10.0.0.9:7001")


def test_master_address_follows_elections_and_ignores_other_masters() -> None:
    master = MasterAddress(master_address="10.0.0.1:10911")
    calls: list[MasterAddresses] = []
    master.on_change.append(lambda: calls.append(master.known))
    master.elected("10.0.0.2:10911")
    master.registered("10.0.0.1:10911", "10.0.0.1:7000")
    assert calls == [("10.0.0.2:10911", "10.0.0.2:10912")]
    master.registered("10.0.0.2:10911", "10.0.0.2:7000")
    assert master.known == ("10.0.0.2:10911", "10.0.0.2:7000")
