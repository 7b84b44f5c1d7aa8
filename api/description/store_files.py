"""Descriptions of the calls for the store's files. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from typing import Final

from api.description.doc import Answer, Doc, Example, plain
from api.description.operation import PART
from api.description.parameters import CURSOR, FILES_LIMIT
from api.handlers.store_files import FilesAnswer

_LOG: Final = {
    "path": "orders-0/00000000000000000000.log",
    "kind": "log",
    "topic": "orders",
    "partition": 0,
    "base_offset": 0,
    "physical_offset": None,
    "size_bytes": 161,
    "last_modified_ms": 1760000000123,
}
_COMMIT_LOG: Final = {
    "path": "commitlog/00000000000000000000",
    "kind": "commitlog",
    "topic": None,
    "partition": None,
    "base_offset": None,
    "physical_offset": 0,
    "size_bytes": 1073741824,
    "last_modified_ms": 1760000000123,
}
_ABOUT: Final = (
    "The files on the disk now, in order of their paths; only regular files are listed. `kind` follows from the "
    "name; `base_offset` is the first offset of a segment, or of a file of a queue, `physical_offset` the first of a "
    "file of RocketMQ's commit log. `size_bytes` is the length, of which less may be used. While `next` is not null, "
    "follow it."
)

STORE_FILES: Final = Doc(
    id="storeFiles",
    tag=PART,
    summary="The files of the store",
    about=_ABOUT,
    query=(FILES_LIMIT, CURSOR),
    answers=(Answer(200, "One page of files.", plain(FilesAnswer)),),
    errors=(42207,),
    examples=(
        Example(
            query={"limit": "1", "cursor": "commitlog"},
            answer={"files": [_COMMIT_LOG], "next": "/store/files?limit=1&cursor=commitlog/0"},
            backends=("rocketmq",),
        ),
        Example(
            "no more files",
            query={"cursor": "~"},
            answer={"files": [], "next": None},
            backends=("kafka",),
        ),
    ),
)
PARTITION_FILES: Final = Doc(
    id="partitionFiles",
    tag=PART,
    summary="The files of a partition",
    about=f"{_ABOUT} In a RocketMQ store these are the files of the queue: its records are stored in the common commit "
    "log.",
    query=(FILES_LIMIT, CURSOR),
    answers=(Answer(200, "One page of files.", plain(FilesAnswer)),),
    errors=(40401, 40402, 42207, 50302),
    examples=(
        Example(
            query={"limit": "1", "cursor": "orders-0/00000000000000000000.index"},
            answer={"files": [_LOG]},
            backends=("kafka",),
        ),
        Example("queue", backends=("rocketmq",)),
    ),
)
