import errno
import os
import subprocess
import sys

from rocketpy.runtime.os_resources import DescriptorGauge, raise_descriptor_limit, shortage_of

RAISED = """
import resource
from rocketpy.runtime.os_resources import raise_descriptor_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
print(raise_descriptor_limit() == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
NEAR = """
import os, resource
from rocketpy.runtime.clock import SystemClock
from rocketpy.runtime.os_resources import DescriptorGauge
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
gauge = DescriptorGauge(SystemClock())
taken = []
while not gauge.take():
    taken.append(os.open("/dev/null", os.O_RDONLY))
print(len(taken))
while True:
    try:
        os.open("/dev/null", os.O_RDONLY)
    except OSError:
        break
print(gauge.take(), DescriptorGauge(SystemClock()).take())
"""


def printed(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    return done.stdout.split()


def test_soft_limit_is_raised_to_the_hard_one() -> None:
    assert printed(RAISED) == ["True"]


def test_raising_it_again_changes_nothing() -> None:
    assert raise_descriptor_limit() == raise_descriptor_limit()


def test_gauge_keeps_a_quarter_in_reserve_and_works_when_nothing_is_left() -> None:
    taken, *short = printed(NEAR)
    assert 120 <= int(taken) <= 150
    assert short == ["True", "True"]


def test_with_many_left_nothing_is_short() -> None:
    class Clock:
        def time_ms(self) -> int:
            return 0

        def monotonic_ms(self) -> int:
            return 0

    gauge = DescriptorGauge(Clock())
    assert not any(gauge.take() for _ in range(100))


def test_shortages_of_the_process_are_sentences_that_name_the_limit() -> None:
    for error in (
        OSError(errno.EMFILE, "Too many open files", "uvloop/loop.so"),
        ImportError("loop.so: cannot open shared object file: Too many open files"),
    ):
        assert "ulimit -n, LimitNOFILE=" in (shortage_of(error) or "")
    assert "ulimit -v" in (shortage_of(RuntimeError("can't start new thread")) or "")
    for other in (OSError(errno.EACCES, "no"), RuntimeError("x"), ImportError("no module")):
        assert shortage_of(other) is None


def test_has_descriptor_is_false_when_none_is_left() -> None:
    script = """
import os, resource
from rocketpy.runtime.os_resources import has_descriptor
print(has_descriptor())
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
while True:
    try:
        os.open("/dev/null", os.O_RDONLY)
    except OSError:
        break
print(has_descriptor())
"""
    assert printed(script) == ["True", "False"]


def test_event_loop_without_descriptors_is_refused_before_it_is_made() -> None:
    script = """
import resource
from rocketpy.remoting.network.event_loop import new_event_loop
new_event_loop().close()
for limit in (6, 8, 10):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 1024))
    try:
        new_event_loop()
    except OSError as error:
        print(limit, error.errno)
"""
    assert printed(script) == f"6 {errno.EMFILE} 8 {errno.EMFILE} 10 {errno.EMFILE}".split()


def test_server_without_descriptors_is_refused_before_its_loop() -> None:
    script = """
import resource
from rocketpy.cli.servers.daemon import run_server
from rocketpy.runtime.os_resources import shortage_of
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
try:
    run_server(None, dict)
except OSError as error:
    print(shortage_of(error))
"""
    assert "no file descriptor is left: raise ulimit -n" in " ".join(printed(script))
