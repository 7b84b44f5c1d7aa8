"""The conversion on Spark gives the records and the report of the record-by-record conversion, there and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage import StoreOptions, convert_store, open_store
from storage.errors import InvalidArgument
from tests.golden import rocketmq_stores, stores
from tests.golden.test_conversion import committed, rows_of
from tests.interop import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SIZES = {**rocketmq_stores.golden("small").settings, "mappedFileSizeCommitLog": str(128 << 10)}


@pytest.mark.parametrize("name", ["many", "system"])
def test_rocketmq_there_and_back(name: str, spark: SparkSession, tmp_path: Path) -> None:
    from logserver.pipeline.jobs import convert

    golden = rocketmq_stores.golden(name)
    there, back = tmp_path / "there", tmp_path / "back"
    settings = golden.settings
    wanted = convert.ConvertOptions(to="kafka", encode=True, settings=settings, split_bytes=20_000)
    rows = convert.run(spark, golden.root, there, wanted).collect()
    expected = convert_store(
        golden.root,
        tmp_path / "one",
        to="kafka",
        encode=True,
        options=StoreOptions(settings=settings),
    )
    assert {r.topic: r.records for r in rows if r.what == "converted"} == {
        topic.topic: topic.records for topic in expected.topics
    }
    with (
        open_store("kafka", there, read_only=True) as ours,
        open_store("kafka", tmp_path / "one", read_only=True) as one,
    ):
        assert written.rows(ours) == written.rows(one)
    sizes = {**settings, "mappedFileSizeCommitLog": str(128 << 10)}
    convert.run(spark, there, back, convert.ConvertOptions(to="rocketmq", target_settings=sizes))
    assert rows_of(back, sizes) == rows_of(golden.root, settings)


@pytest.mark.parametrize("name", ["parts", "txn"])
def test_kafka_there_and_back(name: str, spark: SparkSession, tmp_path: Path) -> None:
    from logserver.pipeline.jobs import convert

    there, back = tmp_path / "there", tmp_path / "back"
    root = stores.KAFKA / name / "data"
    wanted = convert.ConvertOptions(
        to="rocketmq", encode=True, target_settings=SIZES, split_bytes=20_000
    )
    rows = convert.run(spark, root, there, wanted).collect()
    assert not [row for row in rows if row.what in ("left_out", "damaged")]
    settings = {**SIZES}
    convert.run(spark, there, back, convert.ConvertOptions(to="kafka", settings=settings))
    with open_store("kafka", back, read_only=True) as store:
        for partition in stores.partitions():
            if partition.store == name:
                mine = [stores.as_row(partition.address, r) for r in store.scan(partition.address)]
                assert mine == committed(partition)


def test_an_error_is_the_storage_engine_s_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    from logserver.pipeline.jobs import convert

    root = stores.KAFKA / "parts" / "data"
    with pytest.raises(InvalidArgument, match="a kafka store already"):
        convert.run(spark, root, tmp_path / "new", convert.ConvertOptions(to="kafka"))
    assert list(tmp_path.iterdir()) == []
