"""The single Spark session of the tests: a start takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session of two cores, with the format "logserver" registered."""
    from logserver.pipeline.session import create_session
    from tests.pipeline.classes import java_options

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": java_options()}
    session = create_session("tests", master="local[2]", settings=settings)
    yield session
    session.stop()
