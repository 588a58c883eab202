"""Configuration of a name server with a controller beside it, and of one alone."""

from pathlib import Path

from click.testing import CliRunner, Result

from rocketpy.cli.main import command

BESIDE = "enableControllerInNamesrv=true\ncontrollerDLegerPeers=n0-127.0.0.1:9877\n"


def invoke(server: str, tmp_path: Path, text: str, *arguments: str) -> Result:
    path = tmp_path / "server.conf"
    path.write_text(f"bindAddress=127.0.0.1\n{text}")
    return CliRunner().invoke(command, [server, "-c", str(path), *arguments], standalone_mode=False)


def test_controller_beside_a_name_server_takes_keys_of_the_same_file(tmp_path: Path) -> None:
    text = f"{BESIDE}controllerStorePath={tmp_path}/c\nkvConfigPath={tmp_path}/kv.json\n"
    done = invoke("namesrv", tmp_path, text, "--check-config")
    assert (done.return_value, done.output) == (0, "0 errors, 0 warnings\n")
    shown = invoke("namesrv", tmp_path, text, "--print-config").output
    assert shown.startswith("# namesrv\n")
    assert "# controller\n" in shown
    assert f"controllerStorePath={tmp_path}/c\n" in shown


def test_keys_of_a_controller_without_one_are_warnings(tmp_path: Path) -> None:
    text = "controllerDLegerPeers=n0-127.0.0.1:9877\nenableElectUncleanMaster=true\n"
    done = invoke("namesrv", tmp_path, text, "--check-config")
    assert done.return_value == 1
    assert "controllerDLegerPeers: has no effect: it is a key of a controller" in done.output
    assert "enableElectUncleanMaster: has no effect: it is a key of a controller" in done.output


def test_port_of_the_name_server_is_refused_for_its_controller(tmp_path: Path) -> None:
    text = "listenPort=9877\n" + BESIDE
    done = invoke("namesrv", tmp_path, text, "--check-config")
    assert done.return_value == 2
    assert "controllerDLegerPeers: port 9877 is also that of listenPort" in done.output


def test_error_of_a_controller_is_reported_by_its_name_server(tmp_path: Path) -> None:
    done = invoke("namesrv", tmp_path, BESIDE + "controllerType=jRaft\n", "--check-config")
    assert done.return_value == 2
    assert "controllerType: 'jRaft' is a group of controllers" in done.output
    done = invoke("namesrv", tmp_path, BESIDE + "waitSecondsForService=x\n", "--check-config")
    assert done.return_value == 2
    assert "waitSecondsForService: 'x' is not allowed" in done.output


def test_port_of_the_command_line_is_the_one_that_a_controller_listens_on(tmp_path: Path) -> None:
    shown = invoke("controller", tmp_path, "", "-p", "9000", "--print-config").output
    assert "controllerListenPort=9000\n" in shown


def test_controller_of_a_standalone_server_is_refused(tmp_path: Path) -> None:
    arguments = ["standalone", "--data", str(tmp_path), "--check-config"]
    done = CliRunner().invoke(
        command, [*arguments, "-D", "enableControllerInNamesrv=true"], standalone_mode=False
    )
    assert done.return_value == 2
    assert "enableControllerInNamesrv: the one broker of a standalone server" in done.output
