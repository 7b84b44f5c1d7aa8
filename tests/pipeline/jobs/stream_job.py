"""A query in a separate process: every file of SOURCE is a micro-batch that is written to the store PATH.

python -m tests.pipeline.jobs.stream_job SOURCE PATH CHECKPOINT BACKEND JAVA_OPTIONS
"""

from __future__ import annotations

import sys
from pathlib import Path

from logserver.pipeline.session import create_session
from tests.pipeline.conftest import SETTINGS


def main(source: str, path: str, checkpoint: str, backend: str, java_options: str) -> None:
    """Run the query until all files are processed."""
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": java_options}
    spark = create_session("stream", master="local[2]", settings=settings)
    rows = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", "1").text(source)
    writing = rows.repartition(2).writeStream.format("logserver").queryName("killed")
    writing = writing.options(
        path=path, checkpointLocation=checkpoint, backend=backend, topic="t", numPartitions="2"
    )
    begun(Path(source)).touch()
    writing.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def begun(source: Path) -> Path:
    """Return the file that exists once the query is about to start."""
    return source.with_name("begun")


if __name__ == "__main__":
    main(*sys.argv[1:])
