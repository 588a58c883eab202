"""Runs jobs one after another in the session of one `spark-submit`, each like a file.

    spark-submit submitted.py '[["archive", "orders", "--to", "DIR"], ["lag"]]'

For each it prints a line of JSON: its exit code and the rows it printed.
"""

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path

import rocketpy.spark.jobs

JOBS = Path(rocketpy.spark.jobs.__file__).parent


def run(job: str, words: list[str]) -> tuple[object, str]:
    """Run a job with command-line arguments; return its exit code and its output."""
    sys.argv = [str(JOBS / f"{job}.py"), *words]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as ended:
            return ended.code, output.getvalue()
    return None, output.getvalue()


def main() -> None:
    """Run the jobs of the command line."""
    sys.path[0] = str(JOBS)  # the first entry of the path when Python runs one of these files
    for job, *words in json.loads(sys.argv[1]):
        code, output = run(job, [*words, "-o", "json"])
        print(json.dumps([code, json.loads(output or "null")]), flush=True)


if __name__ == "__main__":
    main()
