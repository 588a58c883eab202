"""A module of some length has a test file of its own, or one that is named here."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES_MAX = 150

COMMANDS = "integration/cli/test_commands.py"
STANDS_FOR = {
    "admin/dead_letters.py": "integration/cli/test_dead_letters.py",
    "cli/commands/bench.py": "integration/cli/test_bench.py",
    "cli/commands/cluster.py": COMMANDS,
    "cli/servers/broker.py": "unit/cli/servers/test_check_config.py",
    "cli/servers/daemon.py": "integration/cli/test_daemon.py",
    "cli/commands/group.py": COMMANDS,
    "cli/measure/loads.py": "integration/cli/test_bench.py",
    "cli/commands/store.py": "integration/cli/test_store.py",
    "cli/commands/topic.py": COMMANDS,
    "broker/failover/replica_node.py": "integration/broker/test_failover.py",
    "broker/pop/revive/revive_sink.py": "unit/broker/pop/test_acting.py",
    "broker/acting/acting_parts.py": "integration/broker/test_acting_master.py",
    "controller/processor/elections.py": "integration/controller/test_controller.py",
    "client/consumer/dispatch/polled_messages.py": "unit/client/consumer/test_shared_consumer.py",
    "client/messages/body_types.py": "unit/client/messages/test_typed_serializer.py",
    "client/messages/serializers.py": "unit/client/messages/test_typed_serializer.py",
    "client/options/validation.py": "unit/client/test_wrong_options.py",
    "client/producer/producer_base.py": "unit/client/producer/test_producer.py",
    "client/producer/middleware_producer.py": "unit/client/callbacks/test_middleware.py",
    "remoting/http_listener.py": "integration/remoting/test_http_listener.py",
    "remoting/connection/frame_connection.py": "unit/remoting/connection/test_connection.py",
    "remoting/connection/pool_handoff.py": "unit/remoting/connection/test_dispatch.py",
    "remoting/network/socket_network.py": "integration/remoting/test_server.py",
    "spark/source/executor.py": "integration/spark/test_batch_reader.py",
    "spark/source/offset_resolution.py": "integration/spark/test_batch_reader.py",
    "spark/read_options.py": "unit/spark/test_options.py",
    "spark/jobs/archive.py": "spark/test_archive.py",
    "spark/jobs/audit.py": "unit/spark/jobs/test_audit_store.py",
    "spark/jobs/lag.py": "integration/cli/test_spark.py",
    "spark/jobs/trace.py": "spark/test_jobs.py",
    "spark/sink/writer.py": "spark/test_sink.py",
    "store/scan/by_queue.py": "unit/store/scan/test_scans.py",
    "store/scan/request.py": "unit/store/scan/test_choices.py",
    "store/interfaces.py": "unit/store/test_message_store.py",
    "testing/app_producer.py": "unit/testing/test_app.py",
    "testing/cluster.py": "integration/testing/test_cluster.py",
}


def long_modules() -> list[Path]:
    return [
        path.relative_to(ROOT / "rocketpy")
        for path in sorted(ROOT.glob("rocketpy/**/*.py"))
        if path.read_text().count("\n") > LINES_MAX
    ]


def own_test(module: Path) -> Path:
    return Path("unit") / module.parent / f"test_{module.name}"


def test_long_modules_have_a_test_file() -> None:
    bare = [
        str(module)
        for module in long_modules()
        if not (ROOT / "tests" / STANDS_FOR.get(str(module), own_test(module))).exists()
    ]

    assert not bare


def test_file_that_stands_for_another_is_needed_and_says_so() -> None:
    known = set(map(str, long_modules()))
    with_own_test = {
        module for module in STANDS_FOR if (ROOT / "tests" / own_test(Path(module))).exists()
    }

    assert not STANDS_FOR.keys() - known, "no such long module any more"
    assert not with_own_test, "has a test file of its own now"
