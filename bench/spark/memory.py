"""Peak memory of Spark's Python workers over all measurements."""

from pathlib import Path

LIMIT_MB = 500


def worker_peak_mb(of_pid: int) -> float:
    """Return the highest resident memory of any Python worker below a process, MB; 0 without any.

    Pages of mapped files and pages shared with the parent process are included.
    """
    below = {of_pid}
    peak = 0
    for status in sorted(
        Path("/proc").glob("[0-9]*/status"), key=lambda path: int(path.parent.name)
    ):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
            command = (status.parent / "cmdline").read_text()
        except OSError:  # it ended
            continue
        if int(fields["PPid"]) in below:
            below.add(int(fields["Pid"]))
            if "pyspark" in command and "daemon" in command:
                peak = max(peak, int(fields.get("VmHWM", "0 kB").split()[0]))
    return peak * 1024 / 1e6
