"""The errors that a user of PySpark receives name the option, the column, or the file and position."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logserver.cli.failures import FINDINGS
from logserver.pipeline.read.options import parse_read_options
from storage.errors import Corrupt, IoFailure
from tests.cli.runner import run
from tests.golden import stores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CODECS = stores.KAFKA / "codecs" / "data"
RECORDS = 190  # of codec-gzip-0
FLIPPED, TORN = 200, -30

Load = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: SparkSession) -> Load:
    """A function that reads the golden store of all codecs, or another store."""

    def loaded(
        path: Path = CODECS, schema: str | None = "offset bigint", **options: Any
    ) -> DataFrame:
        reader = spark.read.format("logserver").options(**options)
        return (reader if schema is None else reader.schema(schema)).load(str(path))

    return loaded


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The only partition of a copy of the store."""
    folder = tmp_path / "store" / "codec-gzip-0"
    folder.mkdir(parents=True)
    for path in (CODECS / "codec-gzip-0").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def log_of(folder: Path) -> Path:
    return min(folder.glob("*.log"))


def assert_plain(error: BaseException) -> None:
    """The text has no trace: one line of Spark, and one of the store."""
    lines = str(error).replace("SQLSTATE: 38000", "").split("\n")
    assert "Traceback" not in str(error)
    assert len([line for line in lines if line.strip()]) <= 2, error


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (
            {"startingOffset": "x"},
            "option startingoffset: is unknown: did you mean startingOffsets",
        ),
        ({"subscribe": "nowhere"}, "option subscribe: the store has no nowhere; it has codec-gzip"),
        ({"assign": "[0"}, r"option assign: '\[0' is no JSON"),
        ({"set.segment.bites": "1"}, "option set.segment.bites: is no setting of the store"),
        ({"schema": "ofset bigint"}, "schema: column 'ofset' is unknown: did you mean offset"),
        ({"schema": "offset string"}, "column 'offset' is of type bigint, not string"),
        ({"schema": "message_id string"}, "a kafka store has no column 'message_id'"),
        ({"schema": None, "path": "/nowhere"}, "/nowhere holds no store: it is missing or empty"),
        (
            {"assign": '{"codec-gzip":[0]}', "endingOffsets": '{"codec-gzip":{"0":500}}'},
            "offset 500 of codec-gzip-0 is out of range: the first is 0, the next to be written is 190",
        ),
    ],
)
def test_what_is_wrong_is_named(load: Load, options: dict[str, Any], reported: str) -> None:
    from pyspark.errors import AnalysisException

    path = Path(options.pop("path", CODECS))
    schema = options.pop("schema", "offset bigint")
    with pytest.raises(AnalysisException, match=reported) as caught:
        load(path, schema, **options).count()
    assert_plain(caught.value)


def test_a_folder_that_is_no_store(load: Load, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    (tmp_path / "letter.txt").touch()
    with pytest.raises(AnalysisException, match=r"is no store of a known backend .* letter\.txt"):
        load(tmp_path, None).count()


def test_offsets_that_are_gone_may_be_passed_over(load: Load) -> None:
    assign, end = '{"codec-gzip":[0]}', '{"codec-gzip":{"0":500}}'
    assert load(assign=assign, endingOffsets=end, failOnDataLoss=False).count() == RECORDS


def test_a_flipped_byte_is_an_error_or_a_hole(load: Load, copied: Path) -> None:
    from pyspark.errors import PythonException

    log = log_of(copied)
    data = bytearray(log.read_bytes())
    data[FLIPPED] ^= 1
    log.write_bytes(data)
    with pytest.raises(PythonException, match=rf"{log}: damaged batch at position 115") as caught:
        load(copied.parent).count()
    assert_plain(caught.value)
    found = {row.offset for row in load(copied.parent, mode="PERMISSIVE").collect()}
    assert 0 in found
    assert RECORDS - 1 in found
    assert len(found) < RECORDS


def test_a_torn_tail_is_no_record(load: Load, copied: Path) -> None:
    log = log_of(copied)
    log.write_bytes(log.read_bytes()[:TORN])
    found = sorted(row.offset for row in load(copied.parent).collect())
    assert found == list(range(len(found)))
    assert 0 < len(found) < RECORDS


@pytest.mark.parametrize(("what", "error"), [("gone", IoFailure), ("cut", Corrupt)])
def test_a_file_that_goes_away_while_reading(
    copied: Path, what: str, error: type[Exception]
) -> None:
    from pyspark.sql.types import StructType

    from logserver.pipeline.read.batch import BatchReader

    schema = StructType().add("offset", "long")
    reader = BatchReader(parse_read_options({"path": str(copied.parent)}), schema)
    (partition,) = reader.partitions()
    log = log_of(copied)
    if what == "gone":
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[:FLIPPED])
    with pytest.raises(error, match=f"{log}.*; to read the rest, set the option mode=PERMISSIVE"):
        list(reader.read(partition))


def test_no_partitions_are_no_rows(load: Load, tmp_path: Path) -> None:
    assert load(subscribePattern="nothing").collect() == []


def test_filters_prune_and_stay_exact(load: Load) -> None:
    columns = "topic string, partition int, offset bigint, timestamp timestamp"
    rows = load(schema=columns, pushFilters=True)
    wanted = (
        "topic = 'codec-gzip' AND offset >= 10 AND offset < 20 AND partition IN (0, 1) "
        "AND timestamp >= timestamp_millis(1700000000000)"
    )
    found = rows.where(wanted)
    assert sorted(row.offset for row in found.collect()) == list(range(10, 20))
    assert rows.where(wanted).rdd.getNumPartitions() == 1
    plain = load(schema="topic string, offset bigint")
    assert plain.where("topic = 'codec-gzip' AND offset < 10").count() == 10


def test_a_filter_of_one_query_is_not_in_the_next(load: Load) -> None:
    """Spark keeps a plan narrowed by filters for all queries on a DataFrame."""
    rows = load(schema="topic string, offset bigint")
    every = rows.count()
    late, early = rows.where("offset >= 100"), rows.where("offset < 50")
    assert 0 < late.count() < every
    assert rows.count() == every
    assert early.union(late).count() == early.count() + late.count()


def test_a_command_ends_in_one_line(spark: SparkSession, copied: Path, tmp_path: Path) -> None:
    log = log_of(copied)
    data = bytearray(log.read_bytes())
    data[FLIPPED] ^= 1
    log.write_bytes(data)
    ended = run("pipeline", "export", copied.parent, tmp_path / "out")
    lines = [line for line in ended.err.splitlines() if not line.startswith("progress: ")]
    assert len(lines) == 1
    assert lines[0].startswith(f"error: {log}: damaged batch at position 115")
    assert ended.code == FINDINGS
    assert spark.range(1).count() == 1  # the existing session still works


@pytest.mark.parametrize(
    "arguments", [("audit",), ("rebuild",), ("export", "out"), ("convert", "out", "--to", "kafka")]
)
def test_a_wrong_path_is_reported_before_spark_starts(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logserver.pipeline import session

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "create_session", lambda *_, **__: pytest.fail("it starts"))
    ended = run("pipeline", arguments[0], tmp_path / "nowhere", *arguments[1:])
    assert ended.code != 0
    assert ended.err.startswith(f"error: {tmp_path / 'nowhere'}")
    assert len(ended.err.splitlines()) == 1


def test_an_error_of_spark_itself_is_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logserver.pipeline.jobs import audit

    def failing(session: SparkSession, *_: object, **__: object) -> DataFrame:
        return session.read.parquet(f"{tmp_path}/nowhere")

    monkeypatch.setattr(audit, "run", failing)
    ended = run("pipeline", "audit", CODECS)
    (line,) = [line for line in ended.err.splitlines() if not line.startswith("progress: ")]
    assert re.match(r"error: Spark: \[PATH_NOT_FOUND\] .*nowhere.* \[spark-failed\]$", line)
    shown = run("pipeline", "--debug", "audit", CODECS).err
    assert "Traceback (most recent call last)" in shown
    assert line in shown
