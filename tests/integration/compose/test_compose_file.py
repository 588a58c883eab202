"""docker-compose.yml: what each service has, and that the services of a profile know each other."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.compose.stack import ROOT, Stack, load

PAIR = {"pair-master", "pair-slave"}
ETCD = {"etcd-1", "etcd-2", "etcd-3"}
CONTROLLERS = {"controller-1", "controller-2"}
REPLICAS = {f"ha-{group}-{number}" for group in "ab" for number in (1, 2, 3)}
HA = {"namesrv-2", *ETCD, *CONTROLLERS, *REPLICAS}
HIDDEN = "******"
PROFILES = {name: ["pair"] for name in PAIR} | {name: ["ha"] for name in HA}


def texts(service: dict[str, Any]) -> list[str]:
    """Return the words of the command, and the values of the environment."""
    return [*service["command"], *service.get("environment", {}).values()]


def test_every_service_has_what_it_needs() -> None:
    document = load()
    assert set(document["services"]) == {"namesrv", "broker-a", "broker-b", *PROFILES}
    for name, service in document["services"].items():
        [volume] = service["volumes"]
        assert volume == f"{name}:/data"
        assert name in document["volumes"]
        check = service["healthcheck"]["test"]
        if name in ETCD:
            assert check[:2] == ["CMD", "etcdctl"]
            assert service["build"] == {"context": ".", "target": "etcd"}
            assert service["image"] == "rocketpy-etcd"
        else:
            assert check[:4] == ["CMD", "rocketpy", "cluster", "ping"]
            assert service["build"] == "."
            assert service["image"] == "rocketpy"
        assert service["restart"] == "unless-stopped"
        assert service.get("profiles") == PROFILES.get(name)
        secret = any("/run/secrets/replication" in text for text in texts(service))
        has_copies = name in PAIR | REPLICAS
        assert secret == has_copies == (service.get("secrets") == ["replication"])


def test_every_published_port_is_one_of_loopback() -> None:
    outside_ports = set()
    services = load()["services"]
    for name, service in services.items():
        if name in ETCD | CONTROLLERS:  # their clients can choose the masters
            assert "ports" not in service
            inside = service["expose"][0]
        else:
            [published] = service["ports"]
            address, outside, inside = published.split(":")
            assert address == "127.0.0.1"  # there is no authentication
            # Clients outside connect to the port that a broker registers.
            assert outside == inside or name == "namesrv-2"
            outside_ports.add(outside)
        assert any(inside in text for text in texts(service))
        assert any(f"{name}:{inside}" in word for word in service["healthcheck"]["test"])
    assert len(outside_ports) == len(services) - len(ETCD | CONTROLLERS)


def test_every_service_is_confined_and_bounds_its_logs() -> None:
    for name, service in load()["services"].items():
        assert service["read_only"]
        assert service["tmpfs"] == ["/tmp"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["ulimits"]["nofile"] >= 4_096
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}
        assert name in ETCD or "--ready" in service["healthcheck"]["test"]


def test_every_service_waits_for_services_of_its_profile() -> None:
    services = load()["services"]
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert PROFILES.get(other) in (None, PROFILES.get(name))
    assert set(services["ha-a-1"]["depends_on"]) == {"namesrv", "namesrv-2", *CONTROLLERS}
    assert set(services["controller-1"]["depends_on"]) == ETCD


@pytest.mark.parametrize("page", ["docker-compose.yml", "docs/guide/failover.md"])
def test_documented_command_starts_every_replica(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    [names] = re.findall(r"docker compose --profile ha up(?: -d)?((?: [a-z0-9-]+)+)", text)
    assert set(names.split()) == REPLICAS


def test_etcd_members_know_each_other() -> None:
    services = load()["services"]
    members = ",".join(f"{name}=http://{name}:2380" for name in sorted(ETCD))
    for name in ETCD:
        service = services[name]
        assert service["environment"]["ETCD_INITIAL_CLUSTER"] == members
        program, *words = service["command"]
        assert program == "etcd"
        assert dict(zip(words[::2], words[1::2], strict=True)) == {
            "--name": name,
            "--advertise-client-urls": f"http://{name}:2379",
            "--initial-advertise-peer-urls": f"http://{name}:2380",
        }


def test_replicas_and_controllers_name_the_same_controllers_and_etcd() -> None:
    services = load()["services"]
    of_controller = services["controller-1"]["environment"]
    endpoints = of_controller["ROCKETPY_ETCD_ENDPOINTS"].split(";")
    assert endpoints == [f"http://{name}:2379" for name in sorted(ETCD)]
    peers = of_controller["ROCKETPY_CONTROLLERDLEGERPEERS"].split(";")
    addresses = [each.partition("-")[2] for each in peers]
    assert addresses == [f"{name}:9878" for name in sorted(CONTROLLERS)]
    for peer, name in zip(peers, sorted(CONTROLLERS), strict=True):
        own = f"controllerDLegerSelfId={peer.partition('-')[0]}"
        assert own in services[name]["command"]
    for name in REPLICAS:
        service = services[name]
        settings = service["environment"]
        assert settings["ROCKETPY_CONTROLLER_ADDR"].split(";") == addresses
        assert settings["ROCKETPY_NAMESRV_ADDR"] == "namesrv:9876;namesrv-2:9876"
        assert settings["ROCKETPY_MIN_IN_SYNC_REPLICAS"] == "2"
        assert f"brokerName={name[:-2]}" in service["command"]
        assert f"brokerIP2={name}" in service["command"]


@pytest.mark.parametrize("name", ["controller-1", "ha-a-1", "namesrv-2", "pair-slave"])
def test_configuration_of_a_service_is_accepted(name: str, tmp_path: Path) -> None:
    stack = Stack(tmp_path, HA | PAIR | {"namesrv"})
    service = stack.services[name]
    environment = stack.environment(service)

    def output(option: str) -> str:
        return subprocess.run(
            [*stack.local(service, service.spec["command"]), "--strict-config", option],
            stdout=subprocess.PIPE,
            text=True,
            timeout=100,
            check=True,
            env=environment,
        ).stdout

    output("--check-config")
    values = dict(line.split("=", 1) for line in output("--print-config").splitlines())
    found = {key.lower(): value for key, value in values.items()}
    # A variable that matches no key would be ignored.
    for variable, value in environment.items():
        if variable.startswith("ROCKETPY_"):
            key = variable.removeprefix("ROCKETPY_").replace("_", "").lower()
            assert found[key] == (HIDDEN if "secret" in key else value)
