"""A real Spark cluster on this machine: a standalone master and workers, as shipped in the PySpark package.

Owns the processes, which it ends by their own ids, and the submission of a job; must not know the jobs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark

from logserver.pipeline.processes import PROCESSES
from tests.pipeline.classes import java_options

HOME: Final = Path(pyspark.__file__).parent
ROOT: Final = Path(__file__).resolve().parents[3]
SPARK_JOB: Final = ROOT / "scripts" / "spark_job.py"
STARTS_IN_S: Final = 180.0
JOB_S: Final = 800.0
LOGS_S: Final = 60.0  # a worker writes the output of its executors to a file
ADDRESS: Final = "Starting Spark master at "
REGISTERED: Final = "Successfully registered with master"


class Cluster:
    """A master, and workers of one core and 1 GB each, with their files below `folder`."""

    def __init__(self, folder: Path, master: str, package: Path, workers: int) -> None:
        self.folder = folder
        self.master = master
        self._package = package
        self._workers = workers

    def submit(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a job by spark-submit; see `run`."""
        return self.run(SPARK_JOB, *arguments)

    def run(self, *program: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a program by spark-submit with the packaged code, from a folder without sources; wait for its end.

        Its jobs begin once every worker has its executor: otherwise the first executor would run a short job alone.
        """
        command: list[str | Path] = [HOME / "bin" / "spark-submit", "--master", self.master]
        command += ["--py-files", self._package, "--driver-memory", "512m"]
        for setting in (
            "spark.driver.host=127.0.0.1",
            "spark.sql.shuffle.partitions=4",
            f"spark.cores.max={self._workers}",  # without it Spark does not wait
            "spark.scheduler.minRegisteredResourcesRatio=1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime=120s",
        ):
            command += ["--conf", setting]
        return subprocess.run(
            [*command, *program],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=JOB_S,
            check=False,
        )

    def logged(self, worker: int, sign: str) -> bool:
        """Return whether an executor of the last job on this worker has logged `sign`."""
        last = max(path.name for path in self.folder.glob("worker-*/app-*"))
        folder = self.folder / f"worker-{worker}" / last
        deadline = time.monotonic() + LOGS_S
        while not (found := any(sign in path.read_text() for path in folder.glob("*/stderr"))):
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        return found


def environment() -> dict[str, str]:
    """Return the environment of every process: this Python, the loopback address, and none of our sources."""
    return {
        **os.environ,
        "PYTHONPATH": PROCESSES,
        "JDK_JAVA_OPTIONS": java_options(),
        "SPARK_HOME": str(HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }


@contextmanager
def running(folder: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster that is ready to use; end its processes afterwards."""
    package = folder / "logserver.zip"
    subprocess.run([sys.executable, ROOT / "scripts" / "package_spark", package], check=True)
    with ExitStack() as stack:
        daemon = _Daemon(stack, folder / "master.log", "master.Master", "--port", "0")
        master = daemon.line(ADDRESS).split(ADDRESS)[1].strip()
        daemons = []
        for number in range(workers):
            options = ["--cores", "1", "--memory", "1g"]
            options += ["--work-dir", str(folder / f"worker-{number}"), master]
            log = folder / f"worker-{number}.log"
            daemons.append(_Daemon(stack, log, "worker.Worker", *options))
        for daemon in daemons:
            daemon.line(REGISTERED)
        yield Cluster(folder, master, package, workers)


class _Daemon:
    """One of Spark's own processes, ended with the stack."""

    def __init__(self, stack: ExitStack, log: Path, what: str, *options: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}"]
        command += ["--host", "127.0.0.1", "--webui-port", "0", *options]
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        stack.callback(self._end)

    def line(self, sign: str) -> str:
        """Wait for the first line of the log that contains `sign`, and return it."""
        deadline = time.monotonic() + STARTS_IN_S
        while time.monotonic() < deadline and self._process.poll() is None:
            found = [line for line in self._log.read_text().splitlines() if sign in line]
            if found:
                return found[0]
            time.sleep(0.1)
        raise AssertionError(f"not ready:\n{self._log.read_text()[-4000:]}")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
