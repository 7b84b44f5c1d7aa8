"""The real broker's managers read the config files of the recorded answers as recorded, and as we do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.files.config_answers import BACKUPS, answers, comparable
from tests.interop.rocketmq import rocketmq_peers as peers

pytestmark = pytest.mark.java


def test_the_real_managers_give_the_recorded_answers(tmp_path: Path) -> None:
    recorded = answers()
    for number, answer in enumerate(recorded):
        config = tmp_path / f"{number:04d}" / "config"
        config.mkdir(parents=True)
        (config / answer.file).write_bytes(answer.data)
        (config / f"{answer.file}.bak").write_bytes(BACKUPS[answer.file])
    rows = peers.run_config_reads(tmp_path)
    assert len(rows) == len(recorded)
    for answer, row in zip(recorded, rows, strict=True):
        assert row["loaded"], answer
        value = "backup" if {"bak", "bak@g"} & set(row["value"] or ()) else row["value"]
        assert comparable(value) == comparable(answer.real) == comparable(answer.ours), answer
