"""How a worker loads the state of its shards."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shared.errors import UserError
from shared.messages.state import NodeState, PodNominated, PodOnNode, State
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, ObjectKind
from shared.model.shared_parts import NodeDecoder
from shared.store.link import RedisLink
from shared.store.schema import (
    SHARED_HOSTNAMES,
    Keys,
    check_schema,
    checked,
    decode_load,
    decode_names,
    decode_object,
    decode_pod,
    others,
)

LOAD_PATIENCE = 30.0
"""Seconds to transfer all shards."""
AT_ONCE = 1 << 12
"""Objects decoded before other tasks get a turn."""
META = ("schema", "epoch", "seq", "shard_count", "pipeline")
"""The fields that read_meta takes."""


class StateMeta(NamedTuple):
    epoch: int
    seq: int
    shard_count: int


def read_meta(raw: Sequence[bytes | None], prefix: str, where: str, pipeline: str) -> StateMeta | None:
    """What Redis says of the state; None without a complete one. UserError as in StoreReader.load."""
    schema, epoch, seq, shard_count, whose = raw
    check_schema(prefix, schema)
    if whose and pipeline and whose.decode(errors="replace") != pipeline:
        raise UserError(others(prefix, where, whose.decode(errors="replace")))
    if epoch is None or seq is None or shard_count is None:
        return None
    return StateMeta(int(epoch), int(seq), int(shard_count))


async def pipeline_of(link: RedisLink, prefix: str) -> str | None:
    """The pipeline that the state belongs to; empty if it does not say, None without a state."""
    epoch, pipeline = await link.call("HMGET", Keys(prefix).meta, "epoch", "pipeline")
    if epoch is None:
        return None
    return pipeline.decode(errors="replace") if pipeline else ""


class StoreReader:
    def __init__(self, link: RedisLink, prefix: str) -> None:
        self._link = link
        self._prefix = prefix
        self._keys = Keys(prefix)

    async def load(
        self, shards: Collection[int], shard_count: int, pipeline: str = "", *, others: bool = True
    ) -> State | None:
        """These shards and, with `others`, all else, at one sequence number; None without a complete state.

        UserError if the snapshot uses another number of shards, the schema is unknown, or the state belongs to another
        `pipeline`. Decoding yields to other tasks.
        """
        if self._version(await self._link.call("HMGET", self._keys.meta, *META), shard_count, pipeline) is None:
            return None  # callers that wait for a state poll often
        meta, (hostnames,), nominations, *replies = await self._fetch(sorted(shards), ObjectKind if others else ())
        version = self._version(meta, shard_count, pipeline)
        if version is None:
            return None
        decoding = _Decoding()
        kinds = len(ObjectKind) if others else 0
        for values in replies[:kinds]:
            for start in range(0, len(values), AT_ONCE):
                decoding.add_objects(values[start : start + AT_ONCE])
                await asyncio.sleep(0)
        shards_replies = replies[kinds:]
        for nodes, pods in zip(shards_replies[::2], shards_replies[1::2], strict=True):
            decoding.add_shard(nodes, pods)
            await asyncio.sleep(0)
        return State(
            epoch=version.epoch,
            seq=version.seq,
            nodes=decoding.nodes,
            nominations=decoding.nominations(nominations) if others else [],
            loads=decoding.loads,
            objects=decoding.objects,
            shared_hostnames=decode_names(hostnames) if hostnames else [],
        )

    def _version(self, meta: Sequence[bytes | None], shard_count: int, pipeline: str) -> StateMeta | None:
        """None without a complete state."""
        found = read_meta(meta, self._prefix, self._link.where, pipeline)
        if found is not None and found.shard_count != shard_count:
            theirs = found.shard_count
            raise UserError(f"shard_count: {shard_count} here, but {theirs} where the snapshot wrote the state")
        return found

    async def _fetch(self, shards: list[int], kinds: Iterable[ObjectKind]) -> list[Any]:
        """One transaction, so that everything is of one moment."""
        async with self._link.client.pipeline(transaction=True) as transaction:
            transaction.execute_command("HMGET", self._keys.meta, *META)
            transaction.execute_command("HMGET", self._keys.cluster, SHARED_HOSTNAMES)
            transaction.execute_command("HGETALL", self._keys.nominations)
            for kind in kinds:
                transaction.execute_command("HVALS", self._keys.objects(kind))
            for shard in shards:
                transaction.execute_command("HGETALL", self._keys.nodes(shard))
                transaction.execute_command("HGETALL", self._keys.pods(shard))
            return await self._link.within(LOAD_PATIENCE, transaction.execute())


class _Decoding:
    """Numbers equal loads once, and decodes each of them once."""

    def __init__(self) -> None:
        self.nodes: list[NodeState] = []
        self.objects: list[ClusterObject] = []
        self.loads: list[PodLoad] = []
        self._numbers: dict[bytes, int] = {}
        self._decode_node = checked(NodeDecoder().decode, "node")

    def add_shard(self, nodes: Mapping[bytes, bytes], pods: Mapping[bytes, bytes]) -> None:
        """Ignore a pod whose node is missing; it is published again with its node."""
        on_node: dict[str, dict[str, PodOnNode]] = {}
        for uid, raw in pods.items():
            pod = decode_pod(raw)
            state = PodOnNode(self._number(bytes(pod.load)), pod.key, pod.started)
            on_node.setdefault(pod.node, {})[uid.decode()] = state
        for raw in nodes.values():
            node = self._decode_node(raw)
            self.nodes.append(NodeState(node, on_node.get(node.name, {})))

    def add_objects(self, values: Sequence[bytes]) -> None:
        self.objects += map(decode_object, values)

    def nominations(self, stored: Mapping[bytes, bytes]) -> list[PodNominated]:
        pods = ((uid.decode(), decode_pod(raw)) for uid, raw in stored.items())
        return [PodNominated(uid, pod.node, self._number(bytes(pod.load)), pod.key) for uid, pod in pods]

    def _number(self, encoded: bytes) -> int:
        number = self._numbers.get(encoded)
        if number is None:
            number = self._numbers[encoded] = len(self.loads)
            self.loads.append(decode_load(encoded))
        return number
