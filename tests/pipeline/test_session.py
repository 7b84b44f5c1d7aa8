"""The session that jobs run in, and the error if it cannot be created."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logserver.cli.spark import log_handler
from logserver.pipeline import needs, session
from storage.errors import NotOffered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "PACKAGES", {"json": "1", "no_such_module": "1"})
    with pytest.raises(NotOffered, match=r"needs no_such_module: pip install '\w+\[spark\]'"):
        session.create_session("test", on_start=lambda: pytest.fail("it starts"))


def test_a_call_that_an_interrupt_cuts_off_is_not_told_with_its_stack(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler = log_handler()
    for name in ("root", "logserver.pipeline.read.batch"):
        handler.handle(logging.makeLogRecord({"name": name, "msg": f"said by {name}"}))
    assert capsys.readouterr().err == "said by logserver.pipeline.read.batch\n"


@pytest.mark.spark
def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "running_session", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotOffered, match="needs Java 17"):
        session.create_session("test", on_start=lambda: pytest.fail("it starts"))


def test_settings_of_the_user_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    given = {"spark.log.level": "INFO", "spark.driver.host": "h"}
    wanted = session._wanted("audit", None, given, debug=True)
    assert (
        wanted.items() >= {**given, "spark.master": "local[*]", "spark.ui.enabled": "false"}.items()
    )
    assert wanted["spark.driver.bindAddress"] == "127.0.0.1"
    cluster = session._wanted("audit", "spark://h:7077", {}, debug=False)
    assert cluster["spark.master"] == "spark://h:7077"
    assert "spark.driver.host" not in cluster
    assert cluster["spark.log.level"] == "OFF"


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
