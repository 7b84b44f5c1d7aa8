"""Which store is opened: the directory decides, and the settings may narrow the choice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from logserver.config import Settings
from logserver.errors import SettingsError
from logserver.opening import plan_store
from storage.contract import no_progress
from storage.errors import UnsupportedFormat


def settings(data: Path, **changed: Any) -> Settings:
    return Settings(data=data, **changed)


@pytest.fixture(params=["kafka", "rocketmq"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend that keeps its data."""
    return str(request.param)


@pytest.fixture
def foreign(tmp_path: Path, repo_root: Path, backend: str) -> Path:
    """A directory that a real broker created."""
    copy = tmp_path / "foreign"
    made = {"kafka": "kafka/codecs/data", "rocketmq": "rocketmq/broker/store"}[backend]
    shutil.copytree(repo_root / "tests" / "golden" / made, copy)
    return copy


@pytest.fixture
def ours(tmp_path: Path, backend: str) -> Path:
    """A directory that this program created."""
    plan_store(settings(tmp_path / "ours", backend=backend)).open(no_progress).close()
    return tmp_path / "ours"


@pytest.mark.parametrize("make", [False, True])
def test_a_new_directory_becomes_a_kafka_store(tmp_path: Path, make: bool) -> None:
    data = tmp_path / "new"
    if make:
        data.mkdir()
    plan = plan_store(settings(data))
    assert (plan.backend, plan.read_only, plan.notice) == ("kafka", False, None)
    assert plan_store(settings(data, write=True)).read_only is False


def test_a_new_directory_takes_the_backend_that_is_asked_for(tmp_path: Path, backend: str) -> None:
    plan = plan_store(settings(tmp_path / "new", backend=backend))
    assert (plan.backend, plan.read_only, plan.notice) == (backend, False, None)


def test_our_own_store_is_writable(ours: Path, backend: str) -> None:
    plan = plan_store(settings(ours))
    assert (plan.backend, plan.read_only, plan.notice) == (backend, False, None)
    assert plan_store(settings(ours, read_only=True)).read_only is True


def test_a_real_brokers_directory_is_read_only_until_it_is_taken_over(
    foreign: Path, backend: str
) -> None:
    plan = plan_store(settings(foreign))
    assert (plan.backend, plan.read_only) == (backend, True)
    assert plan.notice is not None
    assert "--write" in plan.notice
    assert plan_store(settings(foreign, read_only=True)).notice is None
    taken = plan_store(settings(foreign, write=True))
    assert (taken.read_only, taken.notice) == (False, None)


def test_a_store_of_another_backend_is_refused(ours: Path, backend: str) -> None:
    other = {"kafka": "rocketmq", "rocketmq": "kafka"}[backend]
    for asked in (other, "memory"):
        with pytest.raises(SettingsError, match=rf"backend.*{asked}.*{backend} store"):
            plan_store(settings(ours, backend=asked))


def test_memory_keeps_nothing_and_must_be_told_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"backend.*memory.*ephemeral"):
        plan_store(settings(tmp_path / "new", backend="memory"))
    plan = plan_store(settings(tmp_path / "new", backend="memory", ephemeral=True))
    assert plan.backend == "memory"


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="choose one of kafka, rocketmq, memory"):
        plan_store(settings(tmp_path / "new", backend="pulsar"))


def test_read_only_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="read_only"):
        plan_store(settings(tmp_path / "new", read_only=True))
    assert not (tmp_path / "new").exists()


def test_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnsupportedFormat):
        plan_store(settings(tmp_path))
    with pytest.raises(UnsupportedFormat):
        plan_store(settings(tmp_path / "notes.txt"))


def test_the_options_reach_the_store(tmp_path: Path, backend: str) -> None:
    name = {"kafka": "num.partitions", "rocketmq": "defaultTopicQueueNums"}[backend]
    chosen = settings(
        tmp_path / "new", backend=backend, set={name: "3"}, accept_loss=True, open_files=77
    )
    plan = plan_store(chosen)
    assert (plan.options.accept_loss, plan.options.open_files) == (True, 77)
    with plan.open(no_progress) as store:
        assert list(store.create_topic("t").partitions) == [0, 1, 2]
