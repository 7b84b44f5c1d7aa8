"""Another implementation reads the generated messages, and writes the same bytes: kafka-python."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from storage.kafka.format.messages.codec import encode
from storage.kafka.format.messages.schema import messages
from tests.wire.test_codecs import NAMES, structs

PROGRAM = """
import importlib, json, sys

found = {}
for module in ("admin", "consumer", "metadata", "producer", "sasl"):
    found.update(vars(importlib.import_module(f"kafka.protocol.{module}")))
answers = []
for name, version, text in json.load(sys.stdin):
    kind = found.get(name)
    # ApiVersionsResponse: its decode tries version 0 first.
    if kind is None or name == "ApiVersionsResponse" or not kind.min_version <= version <= kind.max_version:
        answers.append(None)
        continue
    message = kind.decode(bytes.fromhex(text), version=version)
    message._header = None  # decode leaves it out for some messages
    answers.append(bytes(message.encode(version=version)).hex())
json.dump(answers, sys.stdout)
"""
"""A program of its own: the library uses modules of Python that are deprecated, which is an error in this suite."""


def asked(cases: list[tuple[str, int, str]]) -> list[str | None]:
    """Return the bytes that kafka-python makes of each message; None for a message that it does not know."""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    answers: list[str | None] = json.loads(ended.stdout)
    return answers


# Not shrunk: each attempt starts a program.
@settings(
    max_examples=3,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_kafka_python_writes_the_same_bytes(data: st.DataObject) -> None:
    cases: list[tuple[str, int, str]] = []
    for name in NAMES:
        schema = messages()[name]
        for version in schema.versions:
            fields: Any = data.draw(structs(schema.fields, version))
            cases.append((name, version, encode(name, version, fields).hex()))
    random.Random(1).shuffle(cases)
    answers = asked(cases)
    different = [
        (name, version)
        for (name, version, text), answer in zip(cases, answers, strict=True)
        if answer is not None and answer != text
    ]
    assert different == []
    assert sum(answer is not None for answer in answers) > 200
