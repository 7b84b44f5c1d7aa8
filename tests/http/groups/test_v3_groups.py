"""Consumer groups in the v3 API: the shapes of the REST Proxy, the numbers of the groups' own calls."""

from __future__ import annotations

from typing import Any

from tests.http.groups.consumers import consumer, produce
from tests.http.harness import Api


async def group_with_lag(api: Api, name: str = "g") -> None:
    """Create a topic with two partitions, and a group with offsets in both and without members."""
    await api.create("t", partitions=2)
    await produce(api, "t", 1, 2, 3)
    body = {"topic": "t", "to": {"offset": 0}}
    assert (await api.call("PUT", f"/groups/{name}/offsets", json=body)).status == 200


async def v3(api: Api, path: str, status: int = 200) -> Any:
    """Return the JSON of a path below the groups of the cluster."""
    answer = await api.get(f"/v3/clusters/{api.cluster_id}/consumer-groups{path}")
    assert answer.status == status, answer.body
    return answer.json


async def test_groups_are_listed_with_their_states(api: Api) -> None:
    assert (await v3(api, ""))["data"] == []
    await group_with_lag(api)
    me = await consumer(api, group="with")
    await me.subscribe("t")
    listed = await v3(api, "")
    assert listed["kind"] == "KafkaConsumerGroupList"
    found = {one["consumer_group_id"]: one for one in listed["data"]}
    assert {name: one["state"] for name, one in found.items()} == {"g": "EMPTY", "with": "STABLE"}
    assert {name: one["is_simple"] for name, one in found.items()} == {"g": True, "with": False}
    one = await v3(api, "/with")
    assert one == found["with"]
    assert one["kind"] == "KafkaConsumerGroup"
    base = f"{api.url}/v3/clusters/{api.cluster_id}"
    assert one["metadata"]["self"] == f"{base}/consumer-groups/with"
    assert one["metadata"]["resource_name"].endswith("/consumer-group=with")
    assert one["coordinator"] == {"related": f"{base}/brokers/1"}
    assert (await v3(api, "/none", 404))["error_code"] == 40405


async def test_consumers_and_their_partitions(api: Api) -> None:
    await api.create("t", partitions=2)
    me = await consumer(api)
    await me.subscribe("t")
    (one,) = (await v3(api, "/g/consumers"))["data"]
    name = one["consumer_id"]
    assert one["kind"] == "KafkaConsumer"
    assert one == await v3(api, f"/g/consumers/{name}")
    assigned = (await v3(api, f"/g/consumers/{name}/assignments"))["data"]
    assert [(at["topic_name"], at["partition_id"]) for at in assigned] == [("t", 0), ("t", 1)]
    second = await v3(api, f"/g/consumers/{name}/assignments/t/partitions/1")
    assert second == assigned[1]
    assert second["lag"]["related"].endswith("/consumer-groups/g/lags/t/partitions/1")
    assert (await v3(api, "/g/consumers/none", 404))["error_code"] == 40403
    assert (await v3(api, "/none/consumers", 404))["error_code"] == 40405


async def test_a_partition_of_another_consumer_is_404(api: Api) -> None:
    await api.create("t", partitions=1)
    me = await consumer(api)
    await me.subscribe("t")
    other = await consumer(api, "other")
    await other.subscribe("t")
    names = [one["consumer_id"] for one in (await v3(api, "/g/consumers"))["data"]]
    answers = [
        await api.get(
            f"/v3/clusters/{api.cluster_id}/consumer-groups/g/consumers/{name}/assignments/t/partitions/0"
        )
        for name in names
    ]
    assert sorted(answer.status for answer in answers) == [200, 404]


async def test_lags_are_those_of_the_group(api: Api) -> None:
    await group_with_lag(api)
    lags = (await v3(api, "/g/lags"))["data"]
    own = (await api.get("/groups/g")).json
    assert [(one["topic_name"], one["partition_id"], one["lag"]) for one in lags] == [
        (row["topic"], row["partition"], row["lag"]) for row in own["partitions"]
    ]
    for one in lags:
        assert one["log_end_offset"] - one["current_offset"] == one["lag"]
        assert (one["consumer_id"], one["instance_id"]) == ("", None)
        assert await v3(api, f"/g/lags/t/partitions/{one['partition_id']}") == one
    summary = await v3(api, "/g/lag-summary")
    assert summary["kind"] == "KafkaConsumerGroupLagSummary"
    assert summary["total_lag"] == own["lag"] == 3
    largest = max(lags, key=lambda one: one["lag"])
    assert (summary["max_lag"], summary["max_lag_partition_id"]) == (
        largest["lag"],
        largest["partition_id"],
    )


async def test_without_an_offset_there_is_no_lag(api: Api) -> None:
    await api.create("t", partitions=1)
    me = await consumer(api, auto_commit_enable=False)
    await me.subscribe("t")
    assert (await v3(api, "/g/lags"))["data"] == []
    assert (await v3(api, "/g/lag-summary", 404))["error_code"] == 404
    assert (await v3(api, "/g/lags/t/partitions/0", 404))["error_code"] == 404
    assert (await v3(api, "/g/lags/t/partitions/9", 404))["error_code"] == 40402
