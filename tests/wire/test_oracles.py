"""Other implementations read the generated messages, and write the same bytes: kafka-python and kio."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from storage.kafka.format.messages.codec import encode
from storage.kafka.format.messages.schema import STRUCT, Field, messages
from tests.wire.test_codecs import NAMES, structs


class Case(NamedTuple):
    """A message, with the hexadecimal digits of its bytes."""

    name: str
    key: int
    version: int
    digits: str


# A program of its own: the library uses modules of Python that are deprecated, which is an error in this suite.
KAFKA_PYTHON = """
import importlib, json, sys

found = {}
for module in ("admin", "consumer", "metadata", "producer", "sasl"):
    found.update(vars(importlib.import_module(f"kafka.protocol.{module}")))
answers = []
for name, key, version, digits in json.load(sys.stdin):
    kind = found.get(name)
    # ApiVersionsResponse: its decode tries version 0 first.
    if kind is None or name == "ApiVersionsResponse" or not kind.min_version <= version <= kind.max_version:
        answers.append(None)
        continue
    message = kind.decode(bytes.fromhex(digits), version=version)
    message._header = None  # decode leaves it out for some messages
    answers.append(bytes(message.encode(version=version)).hex())
json.dump(answers, sys.stdout)
"""
KIO = """
import io, json, sys
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

answers = []
for name, key, version, digits in json.load(sys.stdin):
    kind = (load_request_schema if name.endswith("Request") else load_response_schema)(key, version)
    data = bytes.fromhex(digits)
    message, size = entity_reader(kind)(data, 0)
    assert size == len(data), (name, version)
    written = io.BytesIO()
    entity_writer(kind)(written, message)
    answers.append(written.getvalue().hex())
json.dump(answers, sys.stdout)
"""


def asked(program: str, cases: Sequence[Case]) -> list[str | None]:
    """Return the bytes that a library makes of each message; None for a message that it does not know."""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    answers: list[str | None] = json.loads(ended.stdout)
    return answers


def held(fields: Sequence[Field], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a message as kio can hold them: error codes that Kafka has, times after 1970."""
    found = dict(values)
    for field in fields:
        value = values.get(field.name)
        if not value:
            continue
        if field.type == STRUCT:
            inner = [held(field.fields, one) for one in (value if field.is_array else [value])]
            found[field.name] = inner if field.is_array else inner[0]
        elif field.name.endswith("rrorCode"):
            found[field.name] = value % 135 - 1
        elif field.type == "int64" and field.name.endswith("Ms"):
            found[field.name] = value & (2**47 - 1)
    return found


def compare(program: str, cases: Sequence[Case]) -> int:
    """Check that a library writes the bytes of each message that it knows; return how many it knows."""
    pairs = list(zip(cases, asked(program, cases), strict=True))
    assert [case[:3] for case, answer in pairs if answer not in (None, case.digits)] == []
    return sum(answer is not None for _, answer in pairs)


# Not shrunk: each attempt starts two programs.
@settings(
    max_examples=3,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_other_libraries_write_the_same_bytes(data: st.DataObject) -> None:
    """kafka-python knows many of the messages, kio all."""
    plain: list[Case] = []
    narrow: list[Case] = []
    for name in random.Random(1).sample(NAMES, len(NAMES)):
        schema = messages()[name]
        for version in schema.versions:
            values = data.draw(structs(schema.fields, version))
            for cases, fields in ((plain, values), (narrow, held(schema.fields, values))):
                digits = encode(name, version, fields).hex()
                cases.append(Case(name, schema.key or 0, version, digits))
    assert compare(KAFKA_PYTHON, plain) > 200
    assert compare(KIO, narrow) == len(narrow)
