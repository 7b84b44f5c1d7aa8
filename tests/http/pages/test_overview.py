"""The overview at `/`: an index for programs, a page for browsers, with everything of the store escaped and bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urljoin

import pytest

import storage
from api.html import count_text, duration_text, time_text
from logserver.bench.targets.tools import free_ports
from logserver.config import Address
from logserver.service.overview import PAGE_GROUPS, PAGE_PARTITIONS, PAGE_TOPICS, topics_page
from storage import LogStore, Loss, OffsetBounds, RecoveryReport, StoreStats, TopicInfo
from storage.errors import UnknownTopic
from storage.findings import finding
from tests.http.harness import PROBLEM, Answer, Api, opener, records, serving, settings
from tests.http.test_openapi import Checker
from tests.watched_store import WatchedStore

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)'",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
    "‮txt.exe",
    "line\nfeed",
)


async def page(api: Api, path: str = "/") -> Answer:
    """Return the page as a browser gets it."""
    return await api.get(path, accept=BROWSER)


def checked(answer: Answer) -> Checker:
    """Return the links and ids of a page that is whole and loads nothing."""
    checker = Checker()
    checker.feed(answer.body.decode())
    checker.close()
    assert checker.problems == []
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    return checker


async def fill(api: Api) -> None:
    """Store some records in two topics, and offsets of a group."""
    await api.create("orders")
    await api.create("payments", 3)
    await api.post("/topics/orders", records(*range(1200)))
    await api.post("/topics/payments/partitions/1", records(1, 2))
    reset = {"topic": "payments", "to": "earliest"}
    assert (await api.call("PUT", "/groups/billing/offsets", json=reset)).status == 200


# -- the choice


@pytest.mark.parametrize(
    "accept", [None, "*/*", "application/json", "application/vnd.kafka.v2+json"]
)
async def test_a_program_gets_the_index(api: Api, accept: str | None) -> None:
    answer = await api.get("/", accept=accept)
    assert answer.status == 200
    assert answer.headers["Vary"] == "Accept"
    assert answer.json["backend"] == api.backend
    for path in answer.json["links"].values():
        found = await api.get(path)
        assert found.status == 200 or found.code == 42207, path  # a store in memory has no files


async def test_a_browser_gets_the_page(api: Api) -> None:
    answer = await page(api)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Vary"] == "Accept"
    assert answer.headers["Cache-Control"] == "no-store"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "<script" not in answer.body.decode()
    assert " style=" not in answer.body.decode()
    checked(answer)


async def test_only_the_root_itself(api: Api) -> None:
    for path in ("//", "/index.html"):
        assert (await api.get(path)).code == 404
    assert (await api.call("POST", "/", data=b"")).code == 405
    assert (await api.call("HEAD", "/")).status == 200


# -- the content


@pytest.mark.parametrize("advertised", [None, Address("kafka.example", 9092)])
async def test_the_address_for_kafka_clients(tmp_path: Path, advertised: Address | None) -> None:
    own = Address("127.0.0.1", free_ports())
    chosen = settings(tmp_path / "store", listen_kafka=own, advertise_kafka=advertised)
    async with serving(chosen, opener("kafka", chosen)) as api:
        shown = (await page(api)).body.decode()
    assert f"<dt>Kafka clients</dt><dd><bdi>{advertised or own}</bdi></dd>" in shown


async def test_every_link_is_answered(api: Api) -> None:
    await fill(api)
    answer = await page(api)
    links = [link for link in checked(answer).links if not link.startswith("#")]
    assert len(links) >= 10
    for link in links:
        assert not link.startswith(("/", "http")), "a link must work under a prefix too"
        found = await api.get(urljoin("/", link), accept=BROWSER)
        assert found.status == 200, link
    newest = next(link for link in links if link.startswith("topics/orders/") and "=-100" in link)
    assert len((await api.get(f"/{newest}")).json) == 100


async def test_it_shows_what_the_store_holds(api: Api) -> None:
    await fill(api)
    text = (await page(api)).body.decode()
    assert ">1,200</a>" in text
    assert 'from offset 0">0</a>' in text
    assert "1 to " not in text  # one page is enough
    assert ">billing</a>" in text
    assert 'up to offset 2">2</a>' in text
    name = {"kafka": "Kafka", "rocketmq": "RocketMQ", "memory": "memory, no files"}[api.backend]
    assert f"<dd>{name}</dd>" in text
    assert ("All topics share one log" in text) == (api.backend == "rocketmq")
    assert ("KiB</td>" in text) == (api.backend != "rocketmq")


async def test_an_empty_store_says_what_to_do(api: Api) -> None:
    text = (await page(api)).body.decode()
    assert "The first record for a topic creates it." in text
    assert "no group has committed an offset" in text


async def test_the_findings_of_a_start_have_their_remedy(tmp_path: Path, golden_dir: Path) -> None:
    chosen = settings(golden_dir / "torn" / "flip-active" / "data")
    async with serving(chosen, opener("kafka", chosen, read_only=True)) as api:
        answer = await page(api)
    text, checker = answer.body.decode(), checked(answer)
    assert '<strong class="severity">error</strong>' in text
    assert "578 damaged bytes, and good batches follow" in text
    assert "epoch-idem-0 offset 1155" in text
    assert f"<pre>logserver salvage {chosen.data} --to NEW</pre>" in text
    targets = {link.removeprefix("#") for link in checker.links if link.startswith("#")}
    assert targets
    assert targets <= set(checker.ids)
    assert ">Read-only</span>" in text


class Reported(WatchedStore):
    """A store with findings, losses and a failed write, as far as a test sets them."""

    def __init__(self, report: RecoveryReport, *, fenced: str | None = None) -> None:
        super().__init__()
        self.recovery = report
        self._fenced = fenced

    def stats(self) -> StoreStats:
        return replace(super().stats(), fenced=self._fenced)


async def test_many_findings_are_counted(tmp_path: Path) -> None:
    found = [finding("missing-index", f"t-{n}/0.index", topic="t", partition=n) for n in range(500)]
    losses = [
        Loss(
            topic="t",
            partition=n,
            path=f"t-{n}/0.log",
            position=7,
            size_bytes=2048,
            first_offset=3,
            next_offset=None,
            reason="torn <tail>",
        )
        for n in range(100)
    ]
    store = Reported(RecoveryReport(clean_shutdown=False, findings=found, losses=losses))
    async with serving(settings(tmp_path), store.opener()) as api:
        text = (await page(api)).body.decode()
    assert "and 497 more like it" in text
    assert "100 ranges of bytes cut from the log" in text
    assert "torn &lt;tail&gt;" in text
    assert "after an unclean stop" in text
    assert len(text) < 40_000


async def test_a_failed_write_is_an_alarm(tmp_path: Path) -> None:
    store = Reported(RecoveryReport(clean_shutdown=True), fenced="EIO at <t-0>")
    async with serving(settings(tmp_path), store.opener()) as api:
        text = (await page(api)).body.decode()
    assert 'role="alert"' in text
    assert "until a restart: EIO at &lt;t-0&gt;" in text
    assert ">Takes no writes</span>" in text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (3_723_000, "1 h 2 min"),
        (3_603_000, "1 h"),
        (93_784_000, "1 d 2 h"),
        (400 * 86_400_000, "400 d"),
    ],
)
def test_durations_have_two_units(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_numbers_are_grouped_and_times_have_a_zone() -> None:
    assert count_text(12345678) == "12,345,678"
    assert time_text(1_769_853_600_000) == "2026-01-31 10:00 UTC"


# -- everything of the store is escaped


def named(store: WatchedStore, names: Sequence[str]) -> None:
    """Let a store list topics that no client could create."""
    infos = {name: TopicInfo(name=name, partitions=(0,)) for name in names}
    store.topics = lambda: infos  # type: ignore[method-assign]
    store.bounds = lambda partition: OffsetBounds(1, 5, 5)  # type: ignore[method-assign]
    store.log_bytes = lambda partition: 10  # type: ignore[method-assign]


async def test_hostile_names_are_text(tmp_path: Path) -> None:
    store = WatchedStore()
    named(store, [*HOSTILE, "half\udc80", "..", "x" * 249])
    async with serving(settings(tmp_path), store.opener()) as api:
        for name in HOSTILE:
            if name.isprintable():
                await api.service.groups.offsets.commit(name, {})
        answer = await page(api)
    text, checker = answer.body.decode(), checked(answer)
    for name in HOSTILE:
        assert name not in text or "{{" in name
    for shown in (
        "&lt;img src=x onerror=alert(1)&gt;",
        "&amp;lt;b&amp;gt;",
        "{{ 7 * 7 }}",
        r"\u202etxt.exe",
        r"line\nfeed",
        r"half\x80",
    ):
        assert shown in text
    assert "49{%" not in text
    assert not [link for link in checker.links if "alert(" in link or "<" in link or "half" in link]
    assert not [link for link in checker.links if link.startswith("topics/..")]


async def test_a_hostile_group_is_escaped(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("kafka", chosen)) as api:
        await api.create("plain")
        for name in HOSTILE[:4]:
            path = f"/groups/{quote(name, safe='')}"
            reset = {"topic": "plain", "to": "earliest"}
            assert (await api.call("PUT", f"{path}/offsets", json=reset)).status == 200
            assert path.removeprefix("/") in checked(await page(api)).links
        text = (await page(api)).body.decode()
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img" not in text


# -- what a page costs


class Counted:
    """A store that counts its reads."""

    def __init__(self) -> None:
        self.read = 0

    def bounds(self, partition: object) -> OffsetBounds:
        self.read += 1
        return OffsetBounds(0, 1, 1)

    def log_bytes(self, partition: object) -> int | None:
        return 1


def topics(count: int, partitions: int = 1, **facts: Any) -> list[TopicInfo]:
    numbers = tuple(range(partitions))
    return [TopicInfo(name=f"t{n:05}", partitions=numbers, **facts) for n in range(count)]


def test_a_page_of_10_000_topics_reads_50() -> None:
    store = Counted()
    shown = topics_page(store, topics(10_000), "")  # type: ignore[arg-type]
    assert store.read == len(shown.topics) == PAGE_TOPICS
    assert (shown.before, shown.after) == (0, 10_000 - PAGE_TOPICS)


@pytest.mark.parametrize("partitions", [1, 100, PAGE_PARTITIONS + 1])
def test_the_pages_together_show_each_topic_once(partitions: int) -> None:
    """Users' topics come before internal ones, and a page reads a bounded number of partitions."""
    infos = [
        *topics(120, partitions),
        *(replace(info, name=f"a{info.name}", internal=True) for info in topics(3, partitions)),
    ]
    cursor: str | None = ""
    seen: list[str] = []
    while cursor is not None:
        store = Counted()
        shown = topics_page(store, infos[::-1], cursor)  # type: ignore[arg-type]
        assert shown.before == len(seen)
        assert 0 < store.read <= max(PAGE_PARTITIONS, partitions)
        seen += [topic.info.name for topic in shown.topics]
        assert shown.after == len(infos) - len(seen)
        cursor = shown.next_cursor
    assert seen == [info.name for info in infos]


def test_a_topic_that_is_deleted_meanwhile_is_left_out() -> None:
    class Gone(Counted):
        def bounds(self, partition: Any) -> OffsetBounds:
            if partition.topic == "t00001":
                raise UnknownTopic(partition.topic)
            return super().bounds(partition)

    shown = topics_page(Gone(), topics(3), "")  # type: ignore[arg-type]
    assert [topic.info.name for topic in shown.topics] == ["t00000", "t00002"]
    assert shown.next_cursor is None


async def test_the_page_says_how_many_are_left_out(tmp_path: Path) -> None:
    store = WatchedStore()
    named(store, [f"t{n:05}" for n in range(10_000)])
    async with serving(settings(tmp_path), store.opener()) as api:
        first = await page(api)
        assert "1 to 50 of 10,000." in first.body.decode()
        assert "9,950 more topics" in first.body.decode()
        link = next(link for link in checked(first).links if "cursor=" in link)
        assert parse_qs(link.removeprefix("?").partition("#")[0]) == {"cursor": [".t00049"]}
        second = (await page(api, f"/{link.partition('#')[0]}")).body.decode()
        assert "51 to 100 of 10,000." in second
        past = (await page(api, "/?cursor=~~~")).body.decode()
        assert "No more topics." in past
    assert len(first.body) < 60_000


async def test_many_groups_are_counted(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    async with serving(chosen, opener("memory", chosen)) as api:
        await api.create("t")
        for number in range(PAGE_GROUPS + 5):
            reset = {"topic": "t", "to": "earliest"}
            await api.call("PUT", f"/groups/g{number:03}/offsets", json=reset)
        text = (await page(api)).body.decode()
    assert "5 more groups are not shown" in text
    assert text.count('<th scope="row"><bdi><a href="groups/') == PAGE_GROUPS


async def test_the_store_is_never_asked_on_the_event_loop(tmp_path: Path) -> None:
    store, loop_thread = WatchedStore(), threading.get_ident()
    asked: list[str] = []

    def guarded(name: str) -> Callable[..., Any]:
        call = getattr(store, name)

        def run(*args: Any, **options: Any) -> Any:
            assert threading.get_ident() != loop_thread, name
            asked.append(name)
            return call(*args, **options)

        return run

    async with serving(settings(tmp_path), store.opener()) as api:
        await fill(api)
        names = ("bounds", "log_bytes", "stats", "groups", "committed", "topics")
        for name in names:
            setattr(store, name, guarded(name))
        assert (await page(api)).status == 200
    assert set(asked) >= {"bounds", "log_bytes", "stats", "groups", "committed"}


# -- while the store is not open


async def test_a_start_shows_its_progress(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    reported, go_on = threading.Event(), threading.Event()

    def slow(progress: storage.Progress) -> LogStore:
        progress("examining partitions", 30, 120)
        reported.set()
        assert go_on.wait(30)
        return opener("memory", chosen)(progress)

    async with serving(chosen, slow, wait=False) as api:
        before = await page(api)
        assert before.status == 503
        assert "The store is being opened." in before.body.decode()
        opening = asyncio.create_task(api.service.start())
        assert await asyncio.to_thread(reported.wait, 10)
        answer = await page(api)
        for one in (before, answer):
            assert one.status == 503
            assert one.headers["Content-Type"] == "text/html; charset=utf-8"
            assert one.headers["Retry-After"] == "1"
            assert one.headers["Vary"] == "Accept"
            assert one.headers["Cache-Control"] == "no-store"
            assert '<meta http-equiv="refresh" content="2">' in one.body.decode()
            checked(one)
        assert "examining partitions: 30 of 120 (25 %)" in answer.body.decode()
        assert '<progress value="30" max="120"' in answer.body.decode()
        program = await api.get("/")
        assert program.code == 50301
        assert program.json["progress"]["done"] == 30
        assert (await api.get("/docs", accept=BROWSER)).status == 200
        go_on.set()
        await opening
        assert (await page(api)).status == 200


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"Accept": BROWSER}, 400, "text/html; charset=utf-8"),
        ({"Accept": "application/json"}, 400, "application/json"),
        ({"Accept": PROBLEM}, 400, PROBLEM),
        ({"Accept": "image/png"}, 406, "application/json"),
        ({"Accept": "text/html;q=0"}, 406, "application/json"),
        ({"Accept": "text/html;q=0.1, */*"}, 400, "application/json"),
    ],
)
async def test_errors_have_the_form_of_the_answer(
    tmp_path: Path, headers: Mapping[str, str], status: int, kind: str
) -> None:
    chosen = settings(tmp_path)
    async with serving(chosen, opener("memory", chosen)) as api:
        answer = await api.call("GET", "/?no_such=<b>", headers=headers)
    assert (answer.status, answer.headers["Content-Type"]) == (status, kind)
    assert answer.headers["Vary"] == "Accept"
    assert b"<b>" not in answer.body or "json" in kind
