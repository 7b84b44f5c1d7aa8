"""The route table: the handler and the description for each method and path.

Owns the table and the match of a path; must not know what a call does. A path is matched by its segments, each
percent-decoded by itself, so that an encoded slash stays within its segment. One trailing slash is accepted. `{name}`
stands for one segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from api.description import consumers as consumers_doc
from api.description import documentation as documentation_doc
from api.description import fetch as fetch_doc
from api.description import groups as groups_doc
from api.description import messages as messages_doc
from api.description import operation as operation_doc
from api.description import produce as produce_doc
from api.description import store_files as store_files_doc
from api.description import topics as topics_doc
from api.description import v3 as v3_doc
from api.handlers import (
    consumers,
    documentation,
    fetch,
    groups,
    messages,
    operation,
    produce,
    store_files,
    topics,
    v3_records,
    v3_topics,
)
from api.http.errors import ApiError
from api.route import Route

PARTITION: Final = "/topics/{topic}/partitions/{partition}"
INSTANCE: Final = "/consumers/{group}/instances/{instance}"
CLUSTER: Final = "/v3/clusters/{cluster_id}"
V3_TOPIC: Final = f"{CLUSTER}/topics/{{topic}}"

ROUTES: Final[Sequence[Route]] = (
    Route("GET", "/topics", topics.list_topics, topics_doc.LIST_TOPICS),
    Route("GET", "/topics/{topic}", topics.get_topic, topics_doc.GET_TOPIC),
    Route("PUT", "/topics/{topic}", topics.put_topic, topics_doc.PUT_TOPIC),
    Route("PATCH", "/topics/{topic}", topics.patch_topic, topics_doc.PATCH_TOPIC),
    Route("DELETE", "/topics/{topic}", topics.delete_topic, topics_doc.DELETE_TOPIC),
    Route("POST", "/topics/{topic}", produce.produce, produce_doc.PRODUCE),
    Route("GET", "/topics/{topic}/partitions", topics.list_partitions, topics_doc.LIST_PARTITIONS),
    Route("GET", PARTITION, topics.get_partition, topics_doc.GET_PARTITION),
    Route("POST", PARTITION, produce.produce, produce_doc.PRODUCE_TO_PARTITION),
    Route("GET", f"{PARTITION}/offsets", topics.get_offsets, topics_doc.GET_OFFSETS),
    Route("GET", f"{PARTITION}/records", fetch.fetch, fetch_doc.FETCH),
    Route("GET", "/topics/{topic}/messages", messages.find, messages_doc.FIND),
    Route("GET", "/messages/{message_id}", messages.get_message, messages_doc.GET_MESSAGE),
    Route("POST", "/producers", produce.new_producer, produce_doc.NEW_PRODUCER),
    Route("POST", "/consumers/{group}", consumers.create, consumers_doc.CREATE),
    Route("DELETE", INSTANCE, consumers.delete, consumers_doc.DELETE),
    Route("POST", f"{INSTANCE}/subscription", consumers.subscribe, consumers_doc.SUBSCRIBE),
    Route(
        "GET",
        f"{INSTANCE}/subscription",
        consumers.get_subscription,
        consumers_doc.GET_SUBSCRIPTION,
    ),
    Route("DELETE", f"{INSTANCE}/subscription", consumers.unsubscribe, consumers_doc.UNSUBSCRIBE),
    Route("POST", f"{INSTANCE}/assignments", consumers.assign, consumers_doc.ASSIGN),
    Route(
        "GET", f"{INSTANCE}/assignments", consumers.get_assignments, consumers_doc.GET_ASSIGNMENTS
    ),
    Route("GET", f"{INSTANCE}/records", consumers.poll, consumers_doc.POLL),
    Route("POST", f"{INSTANCE}/offsets", consumers.commit, consumers_doc.COMMIT),
    Route("GET", f"{INSTANCE}/offsets", consumers.get_committed, consumers_doc.GET_COMMITTED),
    Route("POST", f"{INSTANCE}/positions", consumers.seek, consumers_doc.SEEK),
    Route(
        "POST",
        f"{INSTANCE}/positions/beginning",
        consumers.seek_to_beginning,
        consumers_doc.SEEK_TO_BEGINNING,
    ),
    Route("POST", f"{INSTANCE}/positions/end", consumers.seek_to_end, consumers_doc.SEEK_TO_END),
    Route("GET", "/groups", groups.list_groups, groups_doc.LIST_GROUPS),
    Route("GET", "/groups/{group}", groups.get_group, groups_doc.GET_GROUP),
    Route("PUT", "/groups/{group}/offsets", groups.reset_group, groups_doc.RESET_GROUP),
    Route("DELETE", "/groups/{group}", groups.delete_group, groups_doc.DELETE_GROUP),
    Route("GET", "/v3/clusters", v3_topics.list_clusters, v3_doc.LIST_CLUSTERS),
    Route("GET", CLUSTER, v3_topics.get_cluster, v3_doc.GET_CLUSTER),
    Route("GET", f"{CLUSTER}/topics", v3_topics.list_topics, v3_doc.LIST_TOPICS),
    Route("POST", f"{CLUSTER}/topics", v3_topics.create_topic, v3_doc.CREATE_TOPIC),
    Route("GET", V3_TOPIC, v3_topics.get_topic, v3_doc.GET_TOPIC),
    Route("DELETE", V3_TOPIC, v3_topics.delete_topic, v3_doc.DELETE_TOPIC),
    Route("GET", f"{V3_TOPIC}/partitions", v3_topics.list_partitions, v3_doc.LIST_PARTITIONS),
    Route(
        "GET",
        f"{V3_TOPIC}/partitions/{{partition}}",
        v3_topics.get_partition,
        v3_doc.GET_PARTITION,
    ),
    Route("GET", f"{V3_TOPIC}/configs", v3_topics.list_configs, v3_doc.LIST_CONFIGS),
    Route("GET", f"{V3_TOPIC}/configs/{{name}}", v3_topics.get_config, v3_doc.GET_CONFIG),
    Route("POST", f"{V3_TOPIC}/records", v3_records.produce_records, v3_doc.PRODUCE_RECORDS),
    Route("POST", f"{V3_TOPIC}/records:batch", v3_records.produce_batch, v3_doc.PRODUCE_BATCH),
    Route("GET", "/livez", operation.livez, operation_doc.LIVEZ),
    Route("GET", "/readyz", operation.readyz, operation_doc.READYZ),
    Route("GET", "/metrics", operation.metrics, operation_doc.METRICS),
    Route("GET", "/store", operation.store, operation_doc.STORE),
    Route("GET", "/store/files", store_files.store_files, store_files_doc.STORE_FILES),
    Route(
        "GET",
        f"/store{PARTITION}/files",
        store_files.partition_files,
        store_files_doc.PARTITION_FILES,
    ),
    Route("GET", "/openapi.json", documentation.openapi, documentation_doc.OPENAPI),
    Route("GET", "/docs", documentation.docs, documentation_doc.DOCS),
)

CACHED_PATHS: Final = 1024


class Router:
    """The route table, indexed for look-ups."""

    def __init__(self, routes: Sequence[Route] = ROUTES) -> None:
        self.find = lru_cache(maxsize=CACHED_PATHS)(self._find)
        self._by_length: dict[int, list[tuple[Sequence[str], Route]]] = {}
        for route in routes:
            pattern = route.pattern[1:].split("/")
            self._by_length.setdefault(len(pattern), []).append((pattern, route))

    def _find(self, method: str, raw_path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the route and its path parameters. Raises 404, or 405 with Allow. `find` caches the last paths."""
        segments = raw_path[1:].removesuffix("/").split("/")
        wanted = "GET" if method == "HEAD" else method
        allowed = []
        for pattern, route in self._by_length.get(len(segments), ()):
            if _matches(pattern, segments):
                if route.method == wanted:
                    return route, _parameters(pattern, segments)
                allowed.append(route.method)
        if not allowed:
            raise ApiError(404, f"there is nothing at {raw_path[:200]!r}; see /docs")
        raise ApiError(
            405,
            f"{method[:20]} is not possible here: use {', '.join(allowed)}",
            headers={"Allow": ", ".join(allowed)},
        )


def _matches(pattern: Sequence[str], segments: Sequence[str]) -> bool:
    return all(
        want == got or (got != "" and want.startswith("{"))
        for want, got in zip(pattern, segments, strict=True)
    )


def _parameters(pattern: Sequence[str], segments: Sequence[str]) -> Mapping[str, str]:
    try:
        return {
            want[1:-1]: unquote(got, errors="strict")
            for want, got in zip(pattern, segments, strict=True)
            if want.startswith("{")
        }
    except UnicodeDecodeError:
        raise ApiError(400, "the path is not percent-encoded UTF-8") from None
