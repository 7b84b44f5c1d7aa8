"""Names that are not UTF-8, or that a terminal obeys: no command fails at such a name; text shows it with escapes, and
JSON too. Both formats.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from logserver.remedies import Inspected
from storage.display import encode_json, encode_json_lines, one_line, readable
from tests.cli.runner import run, settings_options
from tests.golden import rocketmq_stores, stores
from tests.http.harness import opener, serving, settings

NAMES = [b"caf\xe9", b"\xff\xfe-0", b"a\x80 b'c-1"]
SHOWN = ["caf\\xe9", "\\xff\\xfe-0", "a\\x80 b'c-1"]
COMMANDS = [("verify",), ("inspect",), ("dump",), ("offsets",), ("rebuild",), ("salvage", "--to")]
RECORDS = {"kafka": 1500, "rocketmq": 220}
GOLDEN = rocketmq_stores.golden("small")


@pytest.fixture(params=list(zip(NAMES, SHOWN, strict=True)), ids=SHOWN)
def strange(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A name, and its printed form."""
    name, shown = request.param
    return os.fsdecode(name), shown


def kafka(root: Path, name: str) -> Sequence[str]:
    """Create a log directory with the name at its root, in a partition's folder, and as a partition's folder."""
    stores.copy_store(stores.KAFKA / "parts" / "data", root)
    (root / name).mkdir()
    (root / "keyed-0" / name).write_bytes(b"x")
    shutil.copytree(root / "keyed-1", root / f"{name}-0")
    return ()


def rocketmq(root: Path, name: str) -> Sequence[str]:
    """Create a store with the name at its root, in each of its folders, and as a topic."""
    rocketmq_stores.copy_store(GOLDEN, root)
    shutil.copytree(root / "consumequeue" / "order_s1", root / "consumequeue" / name)
    for folder in ("config", "index"):
        (root / folder).mkdir(exist_ok=True)
        (root / folder / name).write_bytes(b"x")
    (root / name).mkdir()
    return settings_options(GOLDEN.settings)


STORES = {"kafka": kafka, "rocketmq": rocketmq}


@pytest.mark.parametrize("backend", STORES)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_no_command_ends_at_it(
    tmp_path: Path, strange: tuple[str, str], backend: str, command: tuple[str, ...]
) -> None:
    name, shown = strange
    root = tmp_path / name
    options = STORES[backend](root, name)
    for output in ("table", "json", "ndjson"):
        target = [tmp_path / f"new-{output}"] if "--to" in command else []
        ended = run(command[0], root, *command[1:], *target, "--output", output, *options)
        assert ended.code in (0, 1), ended.err
        text = ended.out.decode() + ended.err
        assert "udc" not in text
        if output == "json":
            json.loads(ended.out)
        if command[0] in ("verify", "inspect", "salvage"):
            assert (shown if output == "table" else json.dumps(shown)[1:-1]) in text


OBEYED = {"a\x1b[31mred": "a\\x1b[31mred", "a\nb": "a\\nb", "a\u202eb": "a\\u202eb"}


@pytest.mark.parametrize("backend", STORES)
@pytest.mark.parametrize("name", OBEYED, ids=OBEYED.values())
def test_a_terminal_gets_no_command_from_a_name(tmp_path: Path, name: str, backend: str) -> None:
    root = tmp_path / name
    options = STORES[backend](root, name)
    other = "kafka" if backend == "rocketmq" else "rocketmq"
    commands = [*COMMANDS, ("convert", "--to", other)]
    for command, *words in commands:
        target = [tmp_path / f"{command}-{name}"] if words else []
        places = [*words, *target] if command == "salvage" else [*target, *words]
        ended = run(command, root, *places, "--output", "table", *options)
        assert ended.code in (0, 1), ended.err
        text = ended.out.decode() + ended.err
        assert [line for line in text.split("\n") if not line.isprintable()] == []
        assert OBEYED[name] in text or command not in ("verify", "inspect", "salvage")


@pytest.mark.parametrize("backend", STORES)
def test_a_rescue_keeps_all_records(tmp_path: Path, strange: tuple[str, str], backend: str) -> None:
    name, _ = strange
    options = STORES[backend](tmp_path / "store", name)
    ended = run("salvage", tmp_path / "store", "--to", tmp_path / name, *options)
    assert ended.document["kept_records"] == RECORDS[backend]
    report = json.loads((tmp_path / name / ".logserver.salvage.json").read_bytes())
    assert report["kept_records"] == ended.document["kept_records"]


@pytest.mark.parametrize("backend", STORES)
async def test_http_answers(tmp_path: Path, strange: tuple[str, str], backend: str) -> None:
    name, shown = strange
    root = tmp_path / name
    STORES[backend](root, name)
    chosen = settings(root, set=GOLDEN.settings if backend == "rocketmq" else {})
    async with serving(chosen, opener(backend, chosen, read_only=True)) as api:
        for path in ("/topics", "/store", "/readyz", "/metrics", "/store/files", "/groups"):
            answer = await api.get(path)
            assert answer.status == 200, (path, answer.body)
            assert b"udc" not in answer.body
        if backend == "rocketmq":
            assert json.dumps(shown).encode() in (await api.get("/topics")).body


def test_a_command_to_copy_names_the_folder_to_bash(
    tmp_path: Path, strange: tuple[str, str]
) -> None:
    for name in (strange[0], *OBEYED):
        _check_command(tmp_path / name)


def _check_command(folder: Path) -> None:
    folder.mkdir()
    line = Inspected(folder, {}).command("ls -d PATH")
    line.encode()
    assert line.isprintable()
    said = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
    assert said == os.fsencode(folder) + b"\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("caf\udce9", "caf\\xe9"),
        ("\udcff\udc80", "\\xff\\x80"),
        ("half \ud83d of a pair", "half \\ud83d of a pair"),
        ("größe 😀", "größe 😀"),
    ],
)
def test_text_is_readable(value: str, shown: str) -> None:
    assert readable(value) == shown
    assert json.loads(encode_json({value: [value, (1, value)], "n": 1})) == {
        shown: [shown, [1, shown]],
        "n": 1,
    }
    lines = encode_json_lines({"a": text} for text in (value, "b"))
    assert [json.loads(line) for line in lines.splitlines()] == [{"a": shown}, {"a": "b"}]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("größe 😀", "größe 😀"),
        ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
        ("\x1b]0;title\x07\x85", "\\x1b]0;title\\x07\\x85"),
        ("caf\udce9\u2028\u202e", "caf\\xe9\\u2028\\u202e"),
    ],
)
def test_a_line_of_text_is_one_line(value: str, shown: str) -> None:
    assert one_line(value) == shown
