"""How a worker gets the state of its shards."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from shared.cluster.load import PodLoad
from shared.errors import UserError
from shared.messages.state import NodeState, State
from shared.store.link import RedisLink
from shared.store.schema import Keys, check_schema, decode_load, decode_node, decode_pod

LOAD_PATIENCE = 30.0
"""Seconds that all shards at once may take to come over the network."""


class Reader:
    def __init__(self, link: RedisLink, prefix: str) -> None:
        self._link = link
        self._prefix = prefix
        self._keys = Keys(prefix)

    async def load(self, shards: Collection[int], shard_count: int) -> State | None:
        """All there is of these shards at one sequence number; None while no whole state is there.

        UserError if the snapshot divides the nodes into another number of shards, or the schema is unknown.
        Decoding makes room for other tasks after each shard.
        """
        wanted = sorted(shards)
        replies = await self._fetch(wanted)
        schema, epoch, seq, stored_count = replies[0]
        check_schema(self._prefix, schema)
        if epoch is None or seq is None or stored_count is None:
            return None
        if int(stored_count) != shard_count:
            raise UserError(
                f"shard_count: {shard_count} here, but {int(stored_count)} where the snapshot wrote the state"
            )
        decoding = _Decoding()
        for position in range(len(wanted)):
            decoding.add_shard(replies[1 + 2 * position], replies[2 + 2 * position])
            await asyncio.sleep(0)
        return State(int(epoch), int(seq), decoding.nodes, decoding.loads)

    async def _fetch(self, shards: list[int]) -> list[Any]:
        """One transaction, so that all of it is of one moment."""
        async with self._link.client.pipeline(transaction=True) as transaction:
            transaction.execute_command("HMGET", self._keys.meta, "schema", "epoch", "seq", "shard_count")
            for shard in shards:
                transaction.execute_command("HGETALL", self._keys.nodes(shard))
                transaction.execute_command("HGETALL", self._keys.pods(shard))
            return await self._link.within(LOAD_PATIENCE, transaction.execute())


class _Decoding:
    """Numbers equal loads once, and decodes each of them once."""

    def __init__(self) -> None:
        self.nodes: list[NodeState] = []
        self.loads: list[PodLoad] = []
        self._numbers: dict[bytes, int] = {}

    def add_shard(self, nodes: Mapping[bytes, bytes], pods: Mapping[bytes, bytes]) -> None:
        """A pod whose node is not there does not count: it is told of anew when the node comes."""
        on_node: dict[str, dict[str, int]] = {}
        for uid, raw in pods.items():
            pod = decode_pod(raw)
            on_node.setdefault(pod.node, {})[uid.decode()] = self._number(bytes(pod.load))
        for raw in nodes.values():
            node = decode_node(raw)
            self.nodes.append(NodeState(node, on_node.get(node.name, {})))

    def _number(self, encoded: bytes) -> int:
        number = self._numbers.get(encoded)
        if number is None:
            number = self._numbers[encoded] = len(self.loads)
            self.loads.append(decode_load(encoded))
        return number
