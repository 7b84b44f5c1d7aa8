"""JSON of our own files: any bytes give a value or Corrupt."""

from __future__ import annotations

import msgspec
import pytest

from storage.coding.json_file import decode_json
from storage.errors import Corrupt
from storage.files import OverlayFileSystem
from storage.registry import detect
from tests.unit.kafka.workshop import ROOT, Workshop


class Facts(msgspec.Struct):
    """The content of a test file."""

    name: str
    count: int = 0


def test_what_is_not_known_is_passed_over() -> None:
    assert decode_json(b'{"name":"n","more":[1]}', Facts) == Facts("n")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b'{"name":1}', b'{"count":2}', b'{"name":"n","count":1e999}'),
        *(b'{"name":"\xeb"}', b'{"more":' + b"[" * 100_000),
    ],
)
def test_what_cannot_be_understood_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_json(data, Facts)


@pytest.mark.parametrize("data", [b'{"backend":"\xeb"}', b"[" * 100_000])
def test_a_store_file_of_any_bytes_breaks_nothing(data: bytes) -> None:
    shop = Workshop(OverlayFileSystem())
    shop.open_with_topic().close()
    shop.put(ROOT / ".logserver.store.json", data)
    assert detect(ROOT, fs=shop.fs) is not None
    with shop.open() as store:
        assert [finding.code for finding in store.recovery.findings] == ["bad-root-file"]
