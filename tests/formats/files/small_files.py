"""Small text files of a Kafka log directory, and the results of Kafka's own readers.

Known answers of Kafka 4.3.1, which tests/interop/test_small_files.py requests again. They are offsets by partition,
the leader epochs that count, version and topic id, the broker epoch in a marker, and properties. None: the file is
refused, or the marker holds no readable broker epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Case = tuple[bytes, Any]

OFFSETS: Final[tuple[Case, ...]] = (
    (b"", []),
    (b"0", []),
    (b"0\n", []),
    (b"0\r\n1\r\na 0 2\r\n", [["a", 0, 2]]),
    (b"0\r1\ra 0 2\r", [["a", 0, 2]]),
    (b"0\n1\na 0 2", [["a", 0, 2]]),
    (b"0\n1\na 0 2\n\n", None),
    (b"0\n1\n a 0 2\n", None),
    (b"0\n1\na  0\t2  \n", [["a", 0, 2]]),
    (b"0\n1\na 0 2 3\n", None),
    (b"0\n1\na 0 x\n", None),
    (b"0\n2\na 0 2\n", None),
    (b"0\n1\na 0 2\nb 0 3\n", None),
    (b"0\n2\na 0 2\na 0 7\n", [["a", 0, 7]]),
    (b"0\n1\na -1 -2\n", [["a", -1, -2]]),
    (b"0\n1\na +1 +2\n", [["a", 1, 2]]),
    (b"0\n1\na 01 007\n", [["a", 1, 7]]),
    (b"1\n1\na 0 2\n", None),
    (b"0\n-1\n", None),
    (b"+0\n1\na 0 2\n", [["a", 0, 2]]),
    (b" 0\n1\na 0 2\n", None),
    (b"0\n1\na 0 99999999999999999999\n", None),
    (b"0\n1\n\xc3\xa4 0 2\n", [["ä", 0, 2]]),
    (b"0\n1\n\xff 0 2\n", None),
    (b"\xef\xbb\xbf0\n1\na 0 2\n", None),
    (b"0\n1\n\na 0 2\n", None),
    (b"\n", None),
    (b"x", None),
    (b"0\n1\na\x0b0\x0c2\n", [["a", 0, 2]]),
    (b"0\n1\na 99999999999 2\n", None),
    (b"0\n1\na 0 2\x00\n", None),
    (b"0\n\n", None),
    (b"0\n1 \na 0 1\n", None),
    (b"0\n1\n\xe2\x80\x83 0 1\n", [["\u2003", 0, 1]]),
    (b"0\n1\na 0 \xd9\xa3\n", [["a", 0, 3]]),
)

EPOCHS: Final[tuple[Case, ...]] = (
    (b"", []),
    (b"0\n", []),
    (b"0\r\n1\r\n0 0\r\n", [[0, 0]]),
    (b"0\n2\n0 0\n0 5\n", [[0, 0]]),
    (b"0\n2\n3 5\n3 2\n", [[3, 2]]),
    (b"0\n2\n5 0\n3 10\n", [[3, 10]]),
    (b"0\n3\n1 0\n2 10\n3 5\n", [[1, 0], [3, 5]]),
    (b"0\n1\n-1 0\n", None),
    (b"0\n1\n0 -1\n", None),
    (b"0\n1\n-1 -1\n", None),
    (b"0\n2\n0 0\n1 0\n", [[1, 0]]),
    (b"0\n3\n0 0\n5 20\n2 10\n", [[0, 0], [2, 10]]),
    (b"0\n1\nx 0\n", None),
    (b"0\n1\n0 0 0\n", None),
    (b"0\n2\n0 0\n", None),
    (b"0\n1\n0 0", [[0, 0]]),
    (b"1\n1\n0 0\n", None),
    (b"0\n1\n0  0 \n", [[0, 0]]),
    (b"0\n4\n0 0\n1 10\n1 10\n2 20\n", [[0, 0], [1, 10], [2, 20]]),
    (b"0\n4\n0 0\n2 10\n1 10\n3 20\n", [[0, 0], [1, 10], [3, 20]]),
    (b"0\n2\n2 10\n2 10\n", [[2, 10]]),
    (b"0\n1\n2147483648 0\n", None),
)

METADATA: Final[tuple[Case, ...]] = (
    (b"", None),
    (b"version: 0\ntopic_id: wkkocisLQCG7pGuIsnC1GA", [0, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"version: 0\r\ntopic_id: wkkocisLQCG7pGuIsnC1GA", [0, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"version: 0\rtopic_id: wkkocisLQCG7pGuIsnC1GA\r", [0, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"version: 0\ntopic_id: wkkocisLQCG7pGuIsnC1GA\n", [0, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"version: 1\ntopic_id: wkkocisLQCG7pGuIsnC1GA", [1, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"version: -1\ntopic_id: wkkocisLQCG7pGuIsnC1GA", None),
    (b"version:  0\ntopic_id:\twkkocisLQCG7pGuIsnC1GA", [0, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"foo: 0\nbar: wkkocisLQCG7pGuIsnC1GA", [0, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"version: 0\n", None),
    (b"version: 0", None),
    (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", None),
    (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", [0, "AAAAAAAAAAAAAAAAAAAAAQ"]),
    (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg", [0, "AAAAAAAAAAAAAAAAAAAAAg"]),
    (b"version: 0\ntopic_id: wkkocisLQCG7pGuIsnC1GA==", [0, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"version: 0\ntopic_id: wkkocisLQCG7pGuIsnC1G", None),
    (b"version: 0\ntopic_id: wkkocisLQCG7pGuIsnC1GA ", None),
    (b"version: 0\ntopic_id: wkkocisLQCG7pGuIsnC1GB", [0, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"version: 0\ntopic_id: a+/kocisLQCG7pGuIsnC1GA", None),
    (b"version: 0\ntopic_id: wkkocisLQCG7pGuIsnC1GA\nmore: x\n", [0, "wkkocisLQCG7pGuIsnC1GA"]),
    (b"version:0\ntopic_id:wkkocisLQCG7pGuIsnC1GA", None),
    (b"version: 0 \ntopic_id: wkkocisLQCG7pGuIsnC1GA", None),
    (b"\nversion: 0\ntopic_id: wkkocisLQCG7pGuIsnC1GA", None),
    (b"version: x\ntopic_id: wkkocisLQCG7pGuIsnC1GA", None),
    (b"topic_id: wkkocisLQCG7pGuIsnC1GA\nversion: 0\n", None),
    (b"version: 0\ntopic_id: wkkocisLQCG7pGuIsnC1GA=", None),
)

MARKERS: Final[tuple[Case, ...]] = (
    (b"", None),
    (b'{"version":0,"brokerEpoch":5}', 5),
    (b'{"version":7,"brokerEpoch":5}', 5),
    (b'{"brokerEpoch":5}', 5),
    (b'{"version":0}', None),
    (b'{"version":0,"brokerEpoch":null}', None),
    (b'{"version":0,"brokerEpoch":"5"}', 5),
    (b'{"version":0,"brokerEpoch":5.7}', 5),
    (b"not json", None),
    (b'{"version":0,"brokerEpoch":5', None),
    (b"[]", None),
    (b'{"version":0,"brokerEpoch":5}\r\n', 5),
    (b'{"version":0,"brokerEpoch":5} x', 5),
    (b'{"version":"x","brokerEpoch":5}', None),
    (b'{"version":0,"brokerEpoch":5,"more":1}', 5),
    (b'\xef\xbb\xbf{"version":0,"brokerEpoch":5}', None),
    (b'{"version":0,"brokerEpoch":99999999999999999999}', None),
    (b'{"version":0,"brokerEpoch":-5}', -5),
    (b'{"version":0,"brokerEpoch":true}', None),
    (b'{"version":null,"brokerEpoch":5}', 5),
    (b'{"version":0,"brokerEpoch":""}', None),
    (b'/*c*/{"version":0,"brokerEpoch":5}', None),
)

PROPERTIES: Final[tuple[Case, ...]] = (
    (b"", {}),
    (
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=wkkocisLQCG7pGuIsnC1GA\n",
        {
            "cluster.id": "c",
            "directory.id": "wkkocisLQCG7pGuIsnC1GA",
            "node.id": "1",
            "version": "1",
        },
    ),
    (
        b"version=1\r\ncluster.id=c\r\nnode.id=1\r\n",
        {"cluster.id": "c", "node.id": "1", "version": "1"},
    ),
    (b"version=1\rcluster.id=c\rnode.id=1", {"cluster.id": "c", "node.id": "1", "version": "1"}),
    (
        b"#c\n!d\n  version : 1\ncluster.id c\nnode.id\t=\t1\n",
        {"cluster.id": "c", "node.id": "1", "version": "1"},
    ),
    (
        b"version=0\nbroker.id=1\ncluster.id=c\n",
        {"broker.id": "1", "cluster.id": "c", "version": "0"},
    ),
    (b"version=0\nbroker.id=1\n", {"broker.id": "1", "version": "0"}),
    (b"version=0\ncluster.id=c\n", {"cluster.id": "c", "version": "0"}),
    (b"version=1\ncluster.id=c\n", {"cluster.id": "c", "version": "1"}),
    (b"version=1\nnode.id=1\n", {"node.id": "1", "version": "1"}),
    (b"version=2\ncluster.id=c\nnode.id=1\n", {"cluster.id": "c", "node.id": "1", "version": "2"}),
    (
        b"version=+1\ncluster.id=c\nnode.id=+1\n",
        {"cluster.id": "c", "node.id": "+1", "version": "+1"},
    ),
    (
        b"version=1 \ncluster.id=c\nnode.id=1\n",
        {"cluster.id": "c", "node.id": "1", "version": "1 "},
    ),
    (
        b"version=1\ncluster.id=c\nnode.id=1 \n",
        {"cluster.id": "c", "node.id": "1 ", "version": "1"},
    ),
    (
        b"version=1\ncluster.id=c \nnode.id=-1\n",
        {"cluster.id": "c ", "node.id": "-1", "version": "1"},
    ),
    (b"version=1\ncluster.id=\nnode.id=1\n", {"cluster.id": "", "node.id": "1", "version": "1"}),
    (b"cluster.id=c\nnode.id=1\n", {"cluster.id": "c", "node.id": "1"}),
    (
        b"version=1\ncluster.id=a\\\n   b\nnode.id=1\n",
        {"cluster.id": "ab", "node.id": "1", "version": "1"},
    ),
    (
        b"version=1\ncluster.id=a\\u00e4\nnode.id=1\n",
        {"cluster.id": "aä", "node.id": "1", "version": "1"},
    ),
    (b"version=1\ncluster.id=a\\u00g4\nnode.id=1\n", None),
    (
        b"version=1\ncluster.id=\xe4\nnode.id=1\n",
        {"cluster.id": "ä", "node.id": "1", "version": "1"},
    ),
    (
        b"version=1\ncluster.id=c\nnode.id=1\nnode.id=2\n",
        {"cluster.id": "c", "node.id": "2", "version": "1"},
    ),
    (
        b"version=1\ncluster.id=c\nnode.id=1\nother=x\\=y\n",
        {"cluster.id": "c", "node.id": "1", "other": "x=y", "version": "1"},
    ),
    (
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n",
        {
            "cluster.id": "c",
            "directory.id": "AAAAAAAAAAAAAAAAAAAAAA",
            "node.id": "1",
            "version": "1",
        },
    ),
    (
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
        {
            "cluster.id": "c",
            "directory.id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "node.id": "1",
            "version": "1",
        },
    ),
    (
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n",
        {"cluster.id": "c", "directory.id": "x", "node.id": "1", "version": "1"},
    ),
    (
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=\n",
        {"cluster.id": "c", "directory.id": "", "node.id": "1", "version": "1"},
    ),
    (b"version=1\ncluster.id=c\nnode.id=1\\", {"cluster.id": "c", "node.id": "1", "version": "1"}),
    (
        b"\\\n#x=1\nversion=1\ncluster.id=c\nnode.id=1",
        {"cluster.id": "c", "node.id": "1", "version": "1"},
    ),
    (
        b"version=1\\\n\n\ncluster.id=c\nnode.id=1",
        {"cluster.id": "c", "node.id": "1", "version": "1"},
    ),
    (
        b"version=1\ncluster.id=c\nnode.id=1\nbroker.id=2\n",
        {"broker.id": "2", "cluster.id": "c", "node.id": "1", "version": "1"},
    ),
    (
        b"version=1\ncluster.id=c\nnode.id=2147483648\n",
        {"cluster.id": "c", "node.id": "2147483648", "version": "1"},
    ),
    (
        b"version=01\ncluster.id=c\nnode.id=01\n",
        {"cluster.id": "c", "node.id": "01", "version": "01"},
    ),
    (
        b"\xef\xbb\xbfversion=1\ncluster.id=c\nnode.id=1\n",
        {"cluster.id": "c", "node.id": "1", "ï»¿version": "1"},
    ),
    (
        b"version=0\nbroker.id=1\nnode.id=3\ncluster.id=c\n",
        {"broker.id": "1", "cluster.id": "c", "node.id": "3", "version": "0"},
    ),
)

BY_NAME: Final[Mapping[str, tuple[Case, ...]]] = {
    "log-start-offset-checkpoint": OFFSETS,
    "leader-epoch-checkpoint": EPOCHS,
    "partition.metadata": METADATA,
    ".kafka_cleanshutdown": MARKERS,
    "meta.properties": PROPERTIES,
}
