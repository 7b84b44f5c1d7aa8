"""Compressed bodies: the codecs by flag, damage, the limit."""

from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, InvalidArgument
from storage.rocketmq.format.body import (
    CODECS,
    COMPRESS_FROM_BYTES,
    COMPRESSIONS,
    codec_of,
    compress,
    decompress,
)
from storage.rocketmq.format.message import COMPRESSED, COMPRESSION_TYPE_MASK, MULTI_TAGS

TEXT = b"the same again and again, " * 400
LIMIT_BYTES = 1 << 20

ZLIB, LZ4, ZSTD, OLD_ZLIB = (COMPRESSED | codec << 8 for codec in (3, 1, 2, 0))
STREAMS = {
    ZLIB: zlib.compress(TEXT, 5),
    OLD_ZLIB: zlib.compress(TEXT, 9),
    LZ4: lz4.frame.compress(TEXT),
    ZSTD: zstandard.ZstdCompressor(write_content_size=False).compress(TEXT),
}


def named(flag: int) -> str:
    return f"{flag:#x}"


@pytest.mark.parametrize("flag", STREAMS, ids=named)
def test_every_codec(flag: int) -> None:
    for others in (0, MULTI_TAGS, 0x40, 0x80, 0x3C, 1 << 11):
        assert decompress(STREAMS[flag], flag | others, LIMIT_BYTES) == TEXT
    assert decompress(STREAMS[flag], flag, len(TEXT)) == TEXT


def test_names() -> None:
    named_ = {flag: CODECS[codec] for flag in STREAMS if (codec := codec_of(flag)) is not None}
    assert named_ == {ZLIB: "zlib", OLD_ZLIB: "zlib", LZ4: "lz4", ZSTD: "zstd"}
    assert codec_of(COMPRESSION_TYPE_MASK) is None


@given(st.binary(max_size=100), st.integers(0, 0x7FF))
def test_what_is_not_compressed_is_handed_back(body: bytes, flag: int) -> None:
    assert decompress(body, flag & ~COMPRESSED, 0) is body


@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_codecs_that_nobody_knows(codec: int) -> None:
    with pytest.raises(Corrupt, match=f"codec {codec} of the body is unknown") as caught:
        decompress(STREAMS[ZLIB], COMPRESSED | codec << 8, LIMIT_BYTES)
    assert caught.value.facts() == {"kind": "codec", "expected": "0 to 3", "found": f"{codec}"}


@pytest.mark.parametrize("flag", STREAMS, ids=named)
def test_every_cut_is_corrupt(flag: int) -> None:
    data = STREAMS[flag]
    for cut in range(len(data)):
        with pytest.raises(Corrupt):
            decompress(data[:cut], flag, LIMIT_BYTES)


@pytest.mark.parametrize("flag", STREAMS, ids=named)
@pytest.mark.parametrize("tail", [b"\0", b"more"])
def test_nothing_may_follow(flag: int, tail: bytes) -> None:
    with pytest.raises(Corrupt):
        decompress(STREAMS[flag] + tail, flag, LIMIT_BYTES)


@pytest.mark.parametrize("flag", STREAMS, ids=named)
def test_a_bomb_is_refused(flag: int) -> None:
    with pytest.raises(Corrupt, match=f"over the limit of {len(TEXT) - 1} bytes"):
        decompress(STREAMS[flag], flag, len(TEXT) - 1)
    with pytest.raises(Corrupt):
        decompress(STREAMS[flag], flag, 0)


@pytest.mark.parametrize("flag", STREAMS, ids=named)
def test_another_codec_s_stream(flag: int) -> None:
    for other in (ZLIB, LZ4, ZSTD):
        if CODECS[codec_of(other) or 0] != CODECS[codec_of(flag) or 0]:
            with pytest.raises(Corrupt):
                decompress(STREAMS[flag], other, LIMIT_BYTES)


@pytest.mark.parametrize(("name", "flag"), [("zlib", ZLIB), ("lz4", LZ4), ("zstd", ZSTD)])
def test_compressing_as_a_client_does(name: str, flag: int) -> None:
    body, sys_flag = compress(TEXT, name)
    assert sys_flag == flag
    assert len(body) < len(TEXT) // 10
    assert decompress(body, sys_flag, LIMIT_BYTES) == TEXT
    small = TEXT[:COMPRESS_FROM_BYTES]
    assert compress(small, name) == (small, 0)
    assert compress(small + b"x", name)[1] == flag


def test_lz4_blocks_are_independent() -> None:
    body, _ = compress(TEXT * 100, "lz4")
    assert not lz4.frame.get_frame_info(body)["block_linked"]


def test_no_compression() -> None:
    assert compress(TEXT, None) == (TEXT, 0)
    assert compress(TEXT, "none") == (TEXT, 0)


@pytest.mark.parametrize("name", ["", "gzip", "snappy", "ZLIB"])
def test_names_that_are_no_compression(name: str) -> None:
    assert name not in COMPRESSIONS
    for body in (b"", TEXT):
        with pytest.raises(InvalidArgument, match="choose one of none, zlib, lz4, zstd") as caught:
            compress(body, name)
        assert caught.value.facts() == {"field": "compression"}
