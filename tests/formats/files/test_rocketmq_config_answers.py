"""Config files are read as by the real broker: each recorded answer, and no other member is lost."""

from __future__ import annotations

import pytest

from storage.rocketmq.format.config_json import decode_config, encode_config
from storage.rocketmq.format.config_shapes import shape_of
from tests.formats.files.config_answers import Answer, answers, comparable

ALL = answers()
READ = [answer for answer in ALL if answer.real not in ("backup", None)]


@pytest.mark.parametrize("answer", ALL, ids=lambda answer: repr(answer.data[:60]))
def test_each_file_is_read_as_the_real_broker_reads_it(answer: Answer) -> None:
    assert comparable(answer.ours) == comparable(answer.real)


@pytest.mark.parametrize("answer", READ, ids=lambda answer: repr(answer.data[:60]))
def test_what_was_read_is_written_back_so_that_it_is_read_the_same(answer: Answer) -> None:
    """Members that the broker does not know are written back too."""
    content = decode_config(answer.data, shape_of(answer.file)) or {}
    again = Answer(answer.file, encode_config(content), answer.real)
    assert again.ours == answer.ours
    assert set(decode_config(again.data, shape_of(answer.file))) == set(content)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b'/*x*/{"x":1.50,"offsetTable":{}}', b'"x":1.50'),
        (b'{"x":1.50,"offsetTable":{"t@g":{0:1}}}', b'"x":1.50'),
        (
            b"{'x':{'a':'b\\'','c':[1e400,-0.0]},\"offsetTable\":{}}",
            b"{'a':'b\\'','c':[1e400,-0.0]}",
        ),
        (
            b'{"x":123456789012345678901234567890,"offsetTable":{},}',
            b":123456789012345678901234567890",
        ),
        (b'{"dataVersion":{"counter":"7","y":"z"},"offsetTable":{}}', b'"y":"z"'),
        (b'{"offsetTable":{"\\ud83d@g":{0:1}}}', b"\\ud83d@g"),
    ],
)
def test_members_that_no_class_has_keep_their_text(text: bytes, kept: bytes) -> None:
    assert kept in encode_config(decode_config(text, shape_of("consumerOffset.json")))
