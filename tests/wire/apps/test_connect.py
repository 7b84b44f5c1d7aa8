"""Connect with its connectors for files: the lines of a file go to a topic, and from there to another file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.wire.apps.programs import App, Reader, create, wait_for
from tests.wire.harness import BACKENDS

pytestmark = [pytest.mark.java, pytest.mark.slow]

BOTH = pytest.mark.parametrize("address", BACKENDS, indirect=True)
COUNT = 200
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
FILE = "org.apache.kafka.connect.file.FileStream"


@pytest.fixture
def start(classpath: str, tmp_path: Path, address: str) -> Callable[[], App]:
    """A function that starts Connect with both connectors; its connectors are plugins, in a folder of their own."""
    jars = Path(classpath.partition("/*")[0])
    plugins = tmp_path / "plugins" / "file"
    plugins.mkdir(parents=True)
    shutil.copy(next(jars.glob("connect-file-*.jar")), plugins)
    worker = {
        "bootstrap.servers": address,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.storage.file.filename": tmp_path / "offsets",
        "offset.flush.interval.ms": 300,
        "plugin.path": plugins.parent,
        "listeners": "HTTP://127.0.0.1:0",
        "consumer.session.timeout.ms": 6000,
        "consumer.auto.offset.reset": "earliest",
    }
    source = {
        "name": "source",
        "connector.class": f"{FILE}SourceConnector",
        "file": tmp_path / "in",
    }
    sink = {"name": "sink", "connector.class": f"{FILE}SinkConnector", "file": tmp_path / "out"}
    paths = [
        properties(tmp_path / "worker.properties", worker),
        properties(tmp_path / "source.properties", {**source, "topic": "lines"}),
        properties(tmp_path / "sink.properties", {**sink, "topics": "lines"}),
    ]
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    return lambda: App(classpath, tmp_path / "connect.log", main, *map(str, paths))


def properties(path: Path, values: Mapping[str, object]) -> Path:
    """Write a file of properties."""
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def append(path: Path, first: int) -> Sequence[str]:
    """Append COUNT lines to a file; return all lines so far."""
    with path.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(first, first + COUNT))
    return path.read_text().splitlines()


@BOTH
def test_lines_go_from_file_to_file(start: Callable[[], App], tmp_path: Path, address: str) -> None:
    """Stopped and started again, Connect goes on; killed, it may repeat lines and loses none."""
    create(address, "lines")
    out = tmp_path / "out"
    out.touch()
    for turn, end in enumerate((App.stop, App.kill)):
        expected = append(tmp_path / "in", turn * COUNT)
        app = start()
        wait_for(lambda: len(out.read_text().splitlines()) >= len(expected), app)  # noqa: B023
        assert sorted(out.read_text().splitlines()) == sorted(expected)
        end(app)
    everything = set(append(tmp_path / "in", 2 * COUNT))
    app = start()
    wait_for(lambda: set(out.read_text().splitlines()) >= everything, app)
    reader = Reader(address, "lines")
    wait_for(lambda: reader.read() >= len(everything), app)
    app.stop()
    assert set(out.read_text().splitlines()) == everything
    assert {value for _, value in reader.records} == everything
    reader.consumer.close()
