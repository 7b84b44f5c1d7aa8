"""Several jobs in one application on a cluster: one session, as in a notebook; the last is run by spark_job.py.

spark-submit cluster_jobs.py SPARK_JOB LINE..., each LINE the arguments of a job as a JSON list. Prints each line before
the rows of its job, and ends with the exit code of the last.
"""

from __future__ import annotations

import json
import runpy
import sys

from logserver.cli.spark import command
from logserver.pipeline.session import create_session


def main(program: str, *lines: str) -> None:
    """Run the jobs in order."""
    create_session("jobs")
    *first, last = lines
    for line in first:
        begin(line)
        assert not command(json.loads(line), prog_name="spark_job.py", standalone_mode=False)
    begin(last)
    sys.argv[:] = [program, *json.loads(last)]
    runpy.run_path(program, run_name="__main__")


def begin(line: str) -> None:
    """Print the line of a job."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
