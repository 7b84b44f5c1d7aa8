"""Config files and the tables that the real broker's managers read from them: rocketmq_config_answers.jsonl.

Each line holds:
- `file`: the name of the file; its bytes are in `text`, or in `base64` where they are not UTF-8.
- `real`: the table that the manager of rocketmq-broker 5.5.0 with fastjson2 2.0.59 has after load().
It is "backup" where the manager read the `.bak`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from storage.errors import Corrupt
from storage.rocketmq.format.config_json import decode_config
from storage.rocketmq.format.config_shapes import shape_of

TABLES: Final = {"consumerOffset.json": "offsetTable", "topics.json": "topicConfigTable"}
BACKUPS: Final = {
    "consumerOffset.json": b'{"offsetTable":{"bak@g":{0:4}}}',
    "topics.json": b'{"topicConfigTable":{"bak":{"topicName":"bak"}}}',
}
_TOPIC: Final = {
    "attributes": {},
    "order": False,
    "perm": 6,
    "readQueueNums": 16,
    "topicFilterType": "SINGLE_TAG",
    "topicName": None,
    "topicSysFlag": 0,
    "writeQueueNums": 16,
}
"""The members of a TopicConfig of the broker before any member is set."""


@dataclass(frozen=True)
class Answer:
    """A config file and the table that the real broker reads from it."""

    file: str
    data: bytes
    real: Any

    @property
    def ours(self) -> Any:
        """The table that this program reads, in the form of the broker; "backup" where it reads the `.bak`."""
        try:
            content = decode_config(self.data, shape_of(self.file)) or {}
        except Corrupt:
            return "backup"
        if TABLES[self.file] in content and content[TABLES[self.file]] is None:
            return None if self.file == "consumerOffset.json" else "backup"
        table = content.get(TABLES[self.file], {})
        if self.file == "consumerOffset.json":
            return {
                str(key): {str(int(queue)): offset for queue, offset in entry.items()}
                for key, entry in table.items()
            }
        return {
            str(topic): {name: entry.get(name, default) for name, default in _TOPIC.items()}
            for topic, entry in table.items()
        }


def comparable(value: Any) -> Any:
    """Return the value without differences of printing.

    Numbers beyond 2^53 become text, halves of surrogate pairs become `?`.
    """
    if isinstance(value, dict):
        return {comparable(str(key)): comparable(item) for key, item in value.items()}
    if isinstance(value, str):
        return "".join("?" if "\ud800" <= char <= "\udfff" else char for char in value)
    is_large = isinstance(value, int) and abs(value) >= 1 << 53
    return str(value) if is_large else value


def answers() -> list[Answer]:
    """Return all recorded answers."""
    path = Path(__file__).with_name("rocketmq_config_answers.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Answer(
            row["file"],
            base64.b64decode(row["base64"]) if "base64" in row else row["text"].encode(),
            row["real"],
        )
        for row in rows
    ]
