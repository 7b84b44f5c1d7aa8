"""What Java prints: greetings are dropped, messages of tasks are passed on, a failed start is explained."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from logserver.pipeline.launch import JavaOutput
from tests.cli.runner import command_line

GREETING = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/26 14:55:47 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
26/11/26 14:56:49 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform
Setting Spark log level to "OFF".
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:621)
Caused by: java.io.IOException: x
\t... 17 more
"""
OF_A_TASK = "/d/t-0/0.log: damaged batch at position 115; skipped\n"


def printed(output: JavaOutput, *texts: str) -> None:
    """Let a process print the texts and end."""
    ours, of_java = os.pipe()
    thread = output.follow(ours)
    os.write(of_java, "".join(texts).encode())
    os.close(of_java)
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_messages_of_tasks_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    output = JavaOutput(with_log=False)
    output.pass_on()
    printed(output, GREETING, OF_A_TASK)
    assert capsys.readouterr().err == OF_A_TASK


def test_lines_of_the_start_are_kept_until_it_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    output = JavaOutput(with_log=False)
    printed(output, GREETING, OF_A_TASK)
    assert capsys.readouterr().err == ""
    output.pass_on()
    assert capsys.readouterr().err == OF_A_TASK


def test_the_log_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    output = JavaOutput(with_log=True)
    output.pass_on()
    printed(output, GREETING)
    assert capsys.readouterr().err == GREETING


def test_a_failed_start_takes_the_lines() -> None:
    output = JavaOutput(with_log=False)
    printed(
        output,
        GREETING,
        "Error: Could not create the Java Virtual Machine.\nInvalid maximum heap size: -Xmx1x\n\n",
    )
    assert output.take() == "Invalid maximum heap size: -Xmx1x"
    assert output.take() == ""


@pytest.mark.spark
@pytest.mark.slow
def test_a_java_that_refuses_its_settings_ends_the_command_in_one_line() -> None:
    """Java ends at once, before a session."""
    options = ["--conf", "spark.driver.memory=1m", "--conf", "spark.driver.extraJavaOptions=-Xss1x"]
    command = command_line("pipeline", *options, "audit", "tests/golden/kafka/times/data")
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    started, error = ended.stderr.splitlines()
    assert started == "progress: starting Spark"
    assert error.startswith("error: Spark does not start: ")
    assert "-Xss1x" in error
    assert sys.executable not in error
