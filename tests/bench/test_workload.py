"""Workloads and descriptions of servers: the shipped ones are valid, and invalid ones are refused by field name."""

from __future__ import annotations

from pathlib import Path

import pytest

from logserver.bench.http_load import not_done
from logserver.bench.http_templates import load_shape, our_shape, parse_shape
from logserver.bench.publishing import Requests, key
from logserver.bench.readers import Noted, end_to_end_ns
from logserver.bench.workload import load_workload, parse_workload, shipped
from storage.errors import InvalidArgument

NAME = 'name = "mine"\n'
PRODUCE = '[produce]\npath = "/{topic}"\nbody = "{records}"\nrecord = "{value_text}"\n'


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_workload_is_good(name: str) -> None:
    workload = load_workload(name)
    assert workload.name == name
    assert workload.facts.fields["logserver"]["flush"] == workload.own.flush
    quick = workload.quick()
    assert quick.seconds + quick.warm_up_s <= 0.5
    assert quick.filled_records * quick.message_size <= 2_100_000


def test_the_series_have_their_axes() -> None:
    scales = {name: load_workload(name).facts.scale for name in shipped()}
    values: dict[str, list[float]] = {}
    for scale in filter(None, scales.values()):
        values.setdefault(scale.name, []).append(scale.value)
    assert {name: sorted(found) for name, found in values.items()} == {
        "topics": [1, 64, 256, 1000, 10_000],
        "partitions": [1, 100, 10_000],
        "producers": [1, 16, 64],
        "store_bytes": [1e7, 1e8, 1e9, 1e10],
    }


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (NAME + "topicz = 1", "mine.toml: topicz is unknown: the possible names are name, topics"),
        (NAME + 'payloadFile = "x"', "mine.toml: payloadFile is unknown"),
        (NAME + "topics = 0", "mine.toml: topics is 0: it must be a whole number from 1 to 10000"),
        (NAME + "topics = 20000", "mine.toml: topics is 20000: it must be a whole number from 1 to 10000"),
        (NAME + 'topics = "one"', 'mine.toml: topics is "one": it must be a whole number'),
        (NAME + "testDurationMinutes = nan", "testDurationMinutes is nan: it must be a number"),
        (NAME + 'keyDistributor = "X"', 'keyDistributor is "X": it must be "'),
        (NAME + "[logserver]\nflash = 1", "logserver.flash is unknown: the possible names are recordsPer"),
        (NAME + "[logserver]\nacks = 1", "logserver.acks is 1: it must be "),
        (NAME + "topics = 200\npartitionsPerTopic = 100", "partitionsPerTopic: 20000 partitions in all"),
        (NAME + "messageSize = 1000000", "logserver.recordsPerRequest: 100000000 bytes in a request"),
        (NAME + "producersPerTopic = 0", "producersPerTopic: 0 with nothing to read"),
        (NAME + "testDurationMinutes = 0", "testDurationMinutes: 0 with nothing to fill or look up"),
        (NAME + "producerRate = 100000000\n[logserver]\nrecordsPerRequest = 1",
         "producerRate: 1500000000 requests would be due, 100000000 at most"),
        (NAME + 'messageSize = 1000000\nkeyDistributor = "RANDOM_NANO"\n[logserver]\nrecordsPerRequest = 1',
         "messageSize: 10000000000 bytes of values in requests made before, 1073741824 at most"),
        (NAME + "topics = 10000\nmessageSize = 5000", "messageSize: 5000000000 bytes of values in requests"),
        ("topics = 1", "mine.toml: name is missing: it must be text"),
        ('name = "mine\\n"', 'mine.toml: name is "mine\\n": it must be text that matches'),
        ("topics", "mine.toml: no TOML: "),
        (b"\xff", "mine.toml: no TOML: "),
    ],
)  # fmt: skip
def test_a_bad_workload_is_refused(text: str | bytes, reported: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_workload(text if isinstance(text, bytes) else text.encode(), "mine.toml")
    assert reported in str(refused.value)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(
        InvalidArgument, match=r"'hot' is neither a \.toml file nor one of .*hot-topic"
    ):
        load_workload("hot")


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "produce is missing: it must be an object"),
        (PRODUCE + "[fetch]\npath = '/{what}'", "fetch.path: {what} is none of {acks}, "),
        (PRODUCE.replace("value_text", "key_text"), "produce.record: {key_text} is none of"),
        (PRODUCE + "[fetch]\npath = '/'", "fetch: needs next_offset_header or row"),
        (PRODUCE + "placed = '('", "produce.placed: '(': "),
        (PRODUCE + "placed = 'a'", "produce.placed: 'a': needs two groups"),
        (PRODUCE.replace("{records}", "[]"), "produce.body: '[]': needs {records}"),
        (
            PRODUCE.replace('"/{topic}"', '"{topic}"'),
            "produce.path: '{topic}': needs a / at its beginning",
        ),
        (
            PRODUCE + 'headers = { A = "b\\r\\nC: d" }',
            "produce.headers.A: 'A: b\\r\\nC: d': may hold printable ASCII",
        ),
        (PRODUCE + "[fetsch]\npath = '/'", "fetsch is unknown: the possible names are "),
    ],
)
def test_a_bad_description_is_refused(text: str, reported: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_shape((NAME + text).encode(), "mine.toml")
    assert reported.replace("{acks}, ", "") in str(refused.value)


def test_counts_that_nobody_checks_are_told() -> None:
    """This concerns a server that does not report its record count."""
    workload, shape = (
        parse_workload(NAME.encode(), "mine"),
        parse_shape((NAME + PRODUCE).encode(), "x"),
    )
    assert [lack.field for lack in not_done(workload, shape)] == ["stored_records"]
    assert not_done(workload, our_shape()) == []


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ("", ["no fillGB: none by key or time"]),
        ("fillGB = 0.1", ["NO_KEY: none by key"]),
    ],
)
def test_lookups_with_nothing_to_look_up_are_told(fields: str, reported: list[str]) -> None:
    """Lookups by key and time search only the records that filled the store; lookups by key only records with a key."""
    workload = parse_workload((NAME + "[logserver]\nlookups = 10\n" + fields).encode(), "mine")
    assert [lack.reason for lack in not_done(workload, our_shape())] == reported


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("ftp://x", "'ftp://x' is not http://host:port"),
        ("http://x:80/v1", "is more than http://host:port: a path belongs to the calls"),
    ],
)
def test_a_description_needs_an_address(tmp_path: Path, url: str, reported: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'{NAME}url = "{url}"\n{PRODUCE}')
    with pytest.raises(InvalidArgument, match=f"mine.toml: url: .*{reported}"):
        load_shape(str(path))


def test_requests_take_turns_over_topics_and_keys() -> None:
    workload = parse_workload(
        (NAME + 'topics = 3\nkeyDistributor = "KEY_ROUND_ROBIN"\nmessageSize = 5').encode(), "mine"
    )
    requests = Requests(workload, our_shape().produce, ["a", "b", "c"]).repeated()
    assert len(requests) == 102  # 10,000 keys in runs of 100, over 3 topics
    assert [made.split(b"?")[0] for made in requests[:4]] == [
        b"POST /topics/a", b"POST /topics/b", b"POST /topics/c", b"POST /topics/a",
    ]  # fmt: skip
    assert requests[0].count(b'"key"') == 100
    assert len({made.partition(b"\r\n\r\n")[2] for made in requests}) == 100


def test_every_record_that_fills_has_a_key_of_its_own() -> None:
    text = NAME + 'keyDistributor = "KEY_ROUND_ROBIN"\n[logserver]\nfillGB = 0.00025'
    workload = parse_workload(text.encode(), "mine")
    requests = Requests(workload, our_shape().produce, ["a"])
    bodies = list(requests.filling())
    assert (len(bodies), requests.filled_records) == (3, 3000)
    assert key(2999) == b"key-0000002999"
    assert sum(body.count(b'"key"') for body in bodies) == 3000


def test_what_fills_comes_to_every_topic() -> None:
    """This also holds if a request with a thousand records for each topic would be more than the store should hold."""
    text = NAME + 'topics = 30\nkeyDistributor = "KEY_ROUND_ROBIN"\n[logserver]\nfillGB = 0.00025'
    workload, topics = parse_workload(text.encode(), "mine"), [f"t{n}" for n in range(30)]
    requests = Requests(workload, our_shape().produce, topics)
    bodies = list(requests.filling())
    assert len(bodies) == 31
    assert {made.split(b"?")[0].rpartition(b"/")[2].decode() for made in bodies} == set(topics)
    assert requests.filled_records == sum(body.count(b'"key"') for body in bodies) == 31 * 83
    assert requests.topic_of(83 * 29) == "t29"


def test_what_fills_comes_in_requests_of_the_size_that_is_asked_for() -> None:
    """So a store of few topics holds the same batches as a store of many."""
    for topics in (1, 30):
        text = f"{NAME}topics = {topics}\n[logserver]\nfillGB = 0.0001\nfillRecordsPerRequest = 10"
        workload = parse_workload(text.encode(), "mine")
        names = [f"t{n}" for n in range(topics)]
        requests = Requests(workload, our_shape().produce, names)
        assert [body.count(b'"value"') for body in requests.filling()] == [10] * 100


def test_a_record_has_come_with_the_first_page_that_ends_behind_it() -> None:
    pages = [Noted(3, 100), Noted(7, 200)]
    assert end_to_end_ns([(0, 10), (2, 20), (3, 30), (6, 150), (7, 160)], pages) == [
        90,
        80,
        170,
        50,
    ]
