"""A client of consumer instances, for tests.

Owns the calls and the reading of their answers; must not know what the answers should be.
"""

from __future__ import annotations

from typing import Any

from tests.http.harness import V2, Answer, Api, records


class Consumer:
    """A client's view of a consumer instance: the calls below its base URI."""

    def __init__(self, api: Api, path: str) -> None:
        self.api = api
        self.path = path

    async def post(self, call: str, body: object = None) -> Answer:
        """Send a POST with a JSON body, or without a body."""
        if body is None:
            return await self.api.call("POST", f"{self.path}/{call}")
        return await self.api.post(f"{self.path}/{call}", body, content_type=V2)

    async def done(self, call: str, body: object = None) -> None:
        """Send a POST and check for an empty answer with status 204."""
        answer = await self.post(call, body)
        assert answer.status == 204, answer.body
        assert answer.body == b""

    async def subscribe(self, *topics: str) -> None:
        """Subscribe to topics by name."""
        await self.done("subscription", {"topics": topics})

    async def poll(self, query: str = "timeout=0", accept: str = "*/*") -> list[dict[str, Any]]:
        """Poll once and return the rows."""
        answer = await self.api.get(f"{self.path}/records?{query}", accept=accept)
        assert answer.status == 200, answer.body
        rows: list[dict[str, Any]] = answer.json
        return rows

    async def values(self, query: str = "timeout=0") -> list[Any]:
        """Poll once and return the values."""
        return [row["value"] for row in await self.poll(query)]

    async def partitions(self) -> list[tuple[str, int]]:
        """Return the partitions assigned to the instance."""
        answer = await self.api.get(f"{self.path}/assignments")
        return [(row["topic"], row["partition"]) for row in answer.json["partitions"]]

    async def committed(self, query: str = "") -> dict[tuple[str, int], int]:
        """Return the group's committed offsets as the instance sees them."""
        answer = await self.api.get(f"{self.path}/offsets{query}")
        assert answer.status == 200, answer.body
        return {(row["topic"], row["partition"]): row["offset"] for row in answer.json["offsets"]}

    async def delete(self) -> None:
        """Delete the instance, so that it leaves the group."""
        assert (await self.api.call("DELETE", self.path)).status == 204


async def consumer(api: Api, name: str = "c", group: str = "g", **config: Any) -> Consumer:
    """Create an instance that reads JSON from the beginning; `_` in a setting's name stands for a dot."""
    body = {"name": name, "format": "json", "auto.offset.reset": "earliest"}
    body |= {key.replace("_", "."): value for key, value in config.items()}
    answer = await api.post(f"/consumers/{group}", body, content_type=V2)
    assert answer.status == 200, answer.body
    assert answer.json == {
        "instance_id": name,
        "base_uri": f"{api.url}/consumers/{group}/instances/{name}",
    }
    return Consumer(api, f"/consumers/{group}/instances/{name}")


async def produce(api: Api, topic: str, *values: object, partition: int = 0) -> None:
    """Append values as JSON records."""
    path = f"/topics/{topic}/partitions/{partition}"
    answer = await api.post(path, records(*values))
    assert answer.status == 200, answer.body
