"""Faults seen in other REST front ends of Kafka, and the tests that show their absence here.

Owns the list: each row names tests in this folder and its subfolders. These tests must exist. Tests found in no other
file are below.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.http.harness import Api, for_any_bytes, records

SEEN = {
    "null, '', 0 and false are stored as empty, tombstones are lost": (
        "records/test_produce.py::test_null_empty_zero_and_false_stay_apart",
        "records/test_produce.py::test_base64_keeps_null_and_empty_apart",
        "records/test_produce_stream.py::test_null_empty_zero_and_false_are_four_things",
    ),
    "offset -1 is answered for a null or empty value": (
        "test_seen_in_peers.py::test_what_is_null_or_empty_is_answered_its_offset",
    ),
    "null as base64 is stored as garbage": (
        "records/test_produce.py::test_base64_keeps_null_and_empty_apart",
    ),
    "invalid base64 is accepted": (
        "records/test_produce.py::test_bad_base64_alone_gives_its_own_status",
        "records/test_produce_stream.py::test_bad_base64_says_what_to_do",
    ),
    "the first poll is empty": (
        "records/test_polls.py::test_the_first_poll_has_what_is_there",
        "groups/test_consumers.py::test_the_calls_of_an_existing_client",
    ),
    "a poll loses records when it is retried": (
        "records/test_polls.py::test_a_client_that_went_away_is_given_the_same_records_again",
        "records/test_delivery.py::test_a_client_that_closed_before_the_answer_is_given_it_again",
        "records/test_polls.py::test_an_answer_that_was_not_taken_is_given_again",
    ),
    "a record larger than max_bytes gives empty answers without end": (
        "records/test_fetch.py::test_a_record_larger_than_max_bytes_is_given_all_the_same",
        "records/test_polls.py::test_a_record_larger_than_max_bytes_comes_alone",
    ),
    "a bad record holds up a batch": (
        "records/test_produce.py::test_a_bad_record_fails_alone",
        "records/test_produce_stream.py::test_a_broken_line_fails_alone",
        "records/test_v3.py::test_a_broken_record_fails_alone",
        "records/test_fetch.py::test_bytes_that_are_no_json_never_fail_a_page",
        "records/test_polls.py::test_what_is_no_json_does_not_block",
    ),
    "application/json is refused": ("records/test_produce.py::test_plain_json_means_base64",),
    "bad JSON is answered as text/plain, or with 500": (
        "records/test_produce.py::test_a_broken_body_stores_nothing",
        "test_http.py::test_malformed_http_is_told_in_the_same_shape",
        "test_abuse.py::test_bad_bodies",
    ),
    "integers beyond 2^53 are changed": ("records/test_produce.py::test_json_is_kept_verbatim",),
    "there are no headers": ("records/test_produce.py::test_headers_keep_order_repeats_and_null",),
    "there are no timestamps": ("records/test_produce.py::test_a_timestamp_is_kept",),
    "what a commit means is left to guess": (
        "groups/test_consumers.py::test_a_commit_of_3_stores_4_and_no_body_commits_what_was_delivered",
        "groups/test_groups.py::test_a_reset_is_to_the_ends_to_a_time_and_to_an_offset",
    ),
    "an early 413 resets the client that still sends": (
        "test_http.py::test_a_body_too_large_is_drained_so_that_the_answer_arrives",
        "test_http.py::test_a_chunked_body_is_counted",
        "test_http.py::test_the_connection_lives_on_after_a_413",
    ),
}


@pytest.mark.parametrize("tests", SEEN.values(), ids=SEEN.keys())
def test_a_row_has_its_tests(tests: tuple[str, ...]) -> None:
    for test in tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text(encoding="utf-8"), test


async def test_what_is_null_or_empty_is_answered_its_offset(api: Api) -> None:
    for_any_bytes(api)
    rows = (await api.post("/topics/t", records(None, "", 0, False, [], {}))).json["offsets"]
    assert [(row["offset"], row["error_code"]) for row in rows] == [(n, None) for n in range(6)]
