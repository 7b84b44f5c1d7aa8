"""Queries whose classes the archive gets: a batch written and read, a stream into a store, and one out of it.

python -m tests.pipeline.jobs.classes_job FOLDER JAVA_OPTIONS
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from logserver.pipeline.session import create_session
from tests.pipeline.conftest import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def main(folder: str, java_options: str) -> None:
    """Run the queries; wait for the virtual machine, which writes the archive last."""
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": java_options}
    spark = create_session("classes", master="local[2]", settings=settings)
    store, source = f"{folder}/store", f"{folder}/source"

    def to_the_end(writing: DataStreamWriter, checkpoint: str) -> None:
        writing = writing.option("checkpointLocation", f"{folder}/{checkpoint}")
        writing.trigger(availableNow=True).start().awaitTermination()

    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("logserver").option("backend", "kafka").option("topic", "t")
    writer.mode("append").save(store)
    rows.write.text(source)
    stream = spark.readStream.schema("value STRING").text(source).repartition(2)
    writing = stream.writeStream.format("logserver").option("path", store).option("topic", "t")
    to_the_end(writing, "in")
    reader = spark.readStream.format("logserver").option("startingOffsets", "earliest")
    writing = reader.load(store).writeStream.format("parquet").option("path", f"{folder}/out")
    to_the_end(writing, "out")
    kept = spark.read.parquet(f"{folder}/out").orderBy("offset")
    assert len(kept.collect()) == spark.read.format("logserver").load(store).count() == 200
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    machine = gateway.proc
    spark.stop()
    machine.stdin.close()
    machine.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
