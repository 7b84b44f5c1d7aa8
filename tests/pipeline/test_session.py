"""The session that jobs run in, and the error if it cannot be created."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logserver.cli.spark import log_handler
from logserver.pipeline import session
from storage.errors import NotOffered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "NEEDED", ("json", "no_such_module"))
    with pytest.raises(NotOffered, match=r"needs no_such_module: .* pip install 'duolog\[spark\]'"):
        session.create_session("test")


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "NEEDED", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(NotOffered, match="needs Java 17"):
        session.create_session("test")


def test_java_home_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    assert session.has_java()


def test_a_call_that_an_interrupt_cuts_off_is_not_told_with_its_stack(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler = log_handler()
    for name in ("root", "logserver.pipeline.read.batch"):
        handler.handle(logging.makeLogRecord({"name": name, "msg": f"said by {name}"}))
    assert capsys.readouterr().err == "said by logserver.pipeline.read.batch\n"


JAVA = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3391)
"""


@pytest.mark.spark
def test_a_spark_that_does_not_start_is_no_bug_of_ours() -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkRuntimeError

    told = r"does not start: Could not parse Master URL: 'local\[x\]' \(check --master"
    with pytest.raises(NotOffered, match=told), session._starting():
        raise Py4JError(JAVA)
    exited = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    with pytest.raises(NotOffered, match=r"does not start: .*process exited"), session._starting():
        raise exited


@pytest.mark.spark
def test_a_running_session_is_taken_and_left_alone(spark: SparkSession) -> None:
    before = spark.sparkContext.environment
    own = {"MINE": "1"}
    spark.sparkContext.environment = own
    try:
        assert session.running_session() is spark
        assert session.create_session("another") is spark
        assert (spark.sparkContext.environment is own, own) == (True, {"MINE": "1"})
    finally:
        spark.sparkContext.environment = before
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
