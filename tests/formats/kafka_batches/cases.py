"""One table of record batches for both directions: bytes that the real Kafka 4.3.1 wrote, and their content."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]
DecodedRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None, Any]

MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A batch. `options`: the arguments of `encode_batch` that differ from a plain producer's."""

    name: str
    text: str
    records: list[DecodedRecord]
    base_offset: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The stored bytes."""
        return bytes.fromhex(self.text)


PRODUCED = [
    Case(
        name="a key and a value",
        text="0000000000000000 0000004d 00000000 02 942402e1 0000 00000000 0000018bcfe5680b 0000018bcfe5680b"
        "0000000000000000 0000 00000000 00000001 36 00 00 00 04 6530 26 e6b688e681af20626174636820696e64657820 00",
        records=[(0, MS + 11, b"e0", "消息 batch index ".encode(), ())],
        base_offset=0,
        options={"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
    ),
    Case(
        name="headers: a name twice, a null value",
        text="0000000000000065 00000056 00000000 02 cf657aca 0000 00000000 0000018bcfe6f4f0 0000018bcfe6f4f0"
        "ffffffffffffffff ffff ffffffff 00000001 48 00 00 00 08 68313031 1e 74696d652063726320746f70696320"
        "06 02 61 02 31 02 62 01 02 61 02 32",
        records=[
            (
                101,
                MS + 101_616,
                b"h101",
                b"time crc topic ",
                [("a", b"1"), ("b", None), ("a", b"2")],
            )
        ],
        base_offset=101,
    ),
    Case(
        name="no key, no value",
        text="0000000000000001 00000038 00000000 02 c428857f 0000 00000000 0000018bcfe56800 0000018bcfe56800"
        "ffffffffffffffff ffff ffffffff 00000001 0c 00 00 00 01 01 00",
        records=[(1, MS, None, None, ())],
        base_offset=1,
    ),
    Case(
        name="empty is not null",
        text="0000000000000002 0000003f 00000000 02 19688eea 0000 00000001 0000018bcfe56805 0000018bcfe56805"
        "ffffffffffffffff ffff ffffffff 00000002 0c 00 00 00 00 01 00 0c 00 00 02 01 00 00",
        records=[(2, MS + 5, b"", None, ()), (3, MS + 5, None, b"", ())],
        base_offset=2,
    ),
    Case(
        name="times apart",
        text="0000000000000007 00000067 00000000 02 a9684d86 0000 00000001 0000018bcfec8f3e 0000018bcff2f0c0"
        "ffffffffffffffff ffff ffffffff 00000002 2a 00 00 00 04 6b31 1a 76616c7565206c656164657220 00"
        "3e 00 848633 02 04 6b31 2a 746f70696320666574636820736e617073686f7420 00",
        records=[
            (7, MS + 468_798, b"k1", b"value leader ", ()),
            (8, MS + 886_976, b"k1", b"topic fetch snapshot ", ()),
        ],
        base_offset=7,
    ),
    Case(
        name="in a transaction",
        text="0000000000000010 00000076 00000000 02 cd2ae13a 0010 00000000 000001a1fc092da2 000001a1fc092da2"
        "0000000000000001 0000 00000000 00000001 8601 00 00 00 3e"
        "0001000c65786163746c792d6f6e63650009636c69636b732e657500000000"
        "3c 0004000000000000000b0000000007696e2074786e000001a1fc092da100 00",
        records=[
            (
                16,
                1_795_229_822_370,
                b"\x00\x01\x00\x0cexactly-once\x00\tclicks.eu\x00\x00\x00\x00",
                bytes.fromhex("0004000000000000000b0000000007696e2074786e000001a1fc092da100"),
                (),
            )
        ],
        base_offset=16,
        options={
            "producer_id": 1,
            "producer_epoch": 0,
            "base_sequence": 0,
            "transactional": True,
        },
    ),
    Case(
        name="a sequence without a producer (the group coordinator)",
        text="0000000000000002 0000004e 00000000 02 fc5fcbec 0000 00000000 000001a1fc092ea1 000001a1fc092ea1"
        "ffffffffffffffff ffff 00000000 00000001 38 00 00 00 2c"
        "0001000673 6872756e6b00066f726465727300000000 01 00",
        records=[
            (
                2,
                1_795_229_822_625,
                b"\x00\x01\x00\x06shrunk\x00\x06orders\x00\x00\x00\x00",
                None,
                (),
            )
        ],
        base_offset=2,
        options={"base_sequence": 0},
    ),
]
"""Batches of a producer: decoded and encoded."""

COMPACTED = [
    Case(
        name="a tombstone with a delete horizon and a gap before it",
        text="0000000000000010 00000049 00000000 02 519b03e5 0040 00000002 000001a20109daca 0000018bcfe56b83"
        "ffffffffffffffff ffff ffffffff 00000001 2e 00 8dbda392c605 02 0e 6b657931303138 01"
        "02 02 69 04 3137",
        records=[(17, MS + 899, b"key1018", None, [("i", b"17")])],
        base_offset=16,
    ),
    Case(
        name="the last of three, the others taken out",
        text="0000000000000114 00000079 00000002 02 e6e89d1e 0010 00000002 0000018bcfe56803 0000018bcfe56803"
        "00000000000003e9 0003 00000003 00000001 8c01 00 00 04 0a 6b65793234 76"
        "736e617073686f742066657463682061626f72742076616c7565206f66667365742070726f647563657220"
        "d0bdd0bed187d18c206f666673657420 00",
        records=[
            (
                278,
                MS + 3,
                b"key24",
                "snapshot fetch abort value offset producer ночь offset ".encode(),
                (),
            )
        ],
        base_offset=276,
    ),
    Case(
        name="emptied, kept for its producer's sequence",
        text="00000000000001d4 00000031 00000000 02 e62c8c86 0000 00000005 ffffffffffffffff 000001a1fbe2f396"
        "0000000000000000 0000 000001d4 00000000",
        records=[],
        base_offset=468,
    ),
]
"""Batches after compaction: decoded only."""

COMMIT_TEXT = (
    "00000000000000fb 00000042 00000002 02 7a8dfb33 0030 00000000 000001a1fbe38a7b 000001a1fbe38a7b"
    "0000000000000003 000c ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000000 00"
)
HORIZON_COMMIT_TEXT = (
    "0000000000000006 00000045 00000000 02 f936e390 0070 00000000 000001a20109e5f3 000001a1fbe38691"
    "0000000000000001 0001 ffffffff 00000001 26 00 c3fdb25200 08 00000001 0c 000000000000 00"
)
