"""The pytest plugin in tests of other projects: each test runs a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = """
import confluent_kafka
import pytest

def test_first(log_server, log_topic):
    assert log_server.produce(log_topic, {"n": 1}, key="k").offset == 0
    assert [record.json() for record in log_server.records(log_topic)] == [{"n": 1}]
    test_first.topic = log_topic

def test_second(log_server, log_topic):
    '''The same server, another topic; that of the test before is gone.'''
    assert log_server.records(log_topic) == []
    assert log_server.blocking.topics() == [log_topic]
    assert log_topic.startswith("test_second-")

@pytest.mark.parametrize("name", ["a b/c", "é" * 300])
def test_names(log_server, log_topic, name):
    log_server.produce(log_topic, name)
    assert log_server.wait_for(log_topic)[0].text == name

def test_a_kafka_client(log_server, log_topic):
    producer = confluent_kafka.Producer({"bootstrap.servers": log_server.kafka})
    producer.produce(log_topic, "sent", key="k")
    assert producer.flush(20) == 0
    assert [(record.key, record.text) for record in log_server.records(log_topic)] == [(b"k", "sent")]

def test_a_topic_that_the_test_deletes(log_server, log_topic):
    log_server.drop_topic(log_topic)
    assert log_topic not in log_server.blocking.topics()

def test_waiting(log_server):
    topic = log_server.fresh_topic("mine", partitions=2)
    with pytest.raises(TimeoutError):
        log_server.wait_for(topic, 1, timeout_s=0.05)
    assert log_server.backend == "BACKEND"
"""

ASYNCHRONOUS = """
async def test_both(log_server, log_topic):
    log_server.produce(log_topic, "blocking")
    async with log_server.client() as client:
        await client.produce(log_topic, "asynchronous")
        seen = [record.text async for record in client.records(log_topic)]
    assert seen == ["blocking", "asynchronous"]
"""

FAILING = """
def test_of_a_service_that_sends_nothing(log_server, log_topic):
    log_server.produce(log_topic, "one")
    log_server.wait_for(log_topic, 2, timeout_s=0.2)

def test_without_the_server():
    assert 1 == 2
"""

WITHOUT = """
import sys

def test_costs_nothing():
    loaded = {"aiohttp", "msgspec", "storage", "api", "logserver.embedding"}
    assert loaded & set(sys.modules) == set()
    assert "logserver.pytest_plugin" in sys.modules
"""


def run(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a file, with the plugin and without this project's settings."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    # By the module, so that it works without an installed entry point.
    plugin = ["-p", "no:logserver", "-p", "logserver.pytest_plugin", "-p", "no:randomly"]
    return subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", *plugin, *options, str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        timeout=120,
    )


def passed(ended: subprocess.CompletedProcess[str]) -> int:
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = re.search(r"(\d+) passed", ended.stdout)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_plain_tests(tmp_path: Path, backend: str) -> None:
    source = PLAIN.replace("BACKEND", backend)
    options = ["-p", "no:asyncio", "--logserver-backend", backend]
    assert passed(run(tmp_path, source, *options)) == 7


def test_asynchronous_tests(tmp_path: Path) -> None:
    options = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    assert passed(run(tmp_path, ASYNCHRONOUS, "-o", options[0], "-o", options[1])) == 1


def test_a_failure_shows_the_log_of_the_server(tmp_path: Path) -> None:
    ended = run(tmp_path, FAILING, "-p", "no:asyncio")
    first, _, second = ended.stdout.partition("_ test_without_the_server _")
    assert "-1 has 1 of 2 records after 0.2 s" in first
    assert "log of log_server" in first
    assert "kafka store " in first.partition("log of log_server")[2]
    assert "log of log_server" not in second


def test_who_does_not_use_it_does_not_pay(tmp_path: Path) -> None:
    assert passed(run(tmp_path, WITHOUT, "-p", "no:asyncio")) == 1


def test_a_backend_that_is_none(tmp_path: Path) -> None:
    ended = run(tmp_path, WITHOUT, "--logserver-backend", "sqlite")
    assert ended.returncode == 4
    assert "invalid choice" in ended.stderr
