"""The live state of a pipeline, read over NATS without a change to anything: what it decides on, and by what.

subscribe to the snapshot's deltas --> from the first one or a heartbeat on, none is missed
list the pending pods              --> those that are placed meanwhile are dropped at the end
read what Redis holds, by page     --> any worker answers; each page is of another moment
apply the deltas since             --> one state, at one sequence number
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from shared.bus import Bus, Envelope
from shared.bus.subjects import QUEUE_LIST, SNAPSHOT_DELTAS, SNAPSHOT_LIST, WORKER_READ
from shared.errors import ClusterError, UserError
from shared.messages.codec import Message
from shared.messages.inspection import (
    ConfigurationRead,
    DescribedGroup,
    DescribedPod,
    GroupsListed,
    ListGroups,
    ListPodsOn,
    ListQueue,
    PodsOn,
    QueueListed,
    ReadConfiguration,
    ReadState,
    StateRead,
)
from shared.messages.state import Delta, Heartbeat, Loads, NodeState, PodNominated, PodOnNode, State
from shared.model.base import LAST_APPLIED
from shared.model.load import PodLoad
from shared.model.objects import (
    ClusterObject,
    GroupApi,
    GroupRef,
    Node,
    ObjectKind,
    Pod,
    dec_hook,
    enc_hook,
    encode_msgpack,
    group_of,
    key_of,
    kind_of,
    pod_from_msgpack,
)
from shared.store.schema import (
    SHARED_HOSTNAMES,
    StoredPod,
    decode_load,
    decode_names,
    decode_node,
    decode_object,
    decode_pod,
)
from tools.cluster_image import ClusterImage
from tools.following import GAP_PATIENCE, DeltaFollower

PATIENCE = 60.0
"""Seconds for the whole state."""
SILENCE = 5.0
"""Seconds without a delta, a heartbeat or a page, after which the pipeline counts as silent."""
PAUSE = 0.05
"""Seconds until something that was not there yet is asked for again."""
MAX_DELTAS = 1 << 17
"""Deltas that are kept until the state is read: minutes of a busy pipeline."""
FILE, PODS_FILE = "live_state.msgpack", "pods_on_nodes.msgpack"
"""In a dump's folder: the state, and the full pods of nodes."""

M = TypeVar("M", bound=Message)
R = TypeVar("R")
T = TypeVar("T", bound=Pod | ClusterObject)


class Client(Protocol):
    """Asks services; see tools.cli.service_client."""

    bus: Bus
    where: str

    async def request(self, service: str, subject: str, message: Message, reply: type[M]) -> M: ...

    def pages(self, service: str, subject: str, message: Any, reply: type[Any]) -> AsyncIterator[Any]: ...


class LiveGroup(msgspec.Struct, frozen=True):
    """A pod group that has an object (as msgpack) or members. `placed`: members that have nodes, names by uid. `above`:
    the composite groups that it is in, as msgpack.
    """

    api: GroupApi
    key: str
    body: bytes = b""
    placed: dict[str, str] = {}
    above: tuple[bytes, ...] = ()

    @property
    def ref(self) -> GroupRef:
        return GroupRef(self.api, self.key)


class LiveState(msgspec.Struct, frozen=True):
    """`pending`: all pods of the queue with their bodies, in its order. `at`: the Unix time."""

    at: float
    shard_count: int
    state: State
    pending: list[DescribedPod]
    configuration: ConfigurationRead
    groups: list[LiveGroup] = []


class StateBuilder:
    """What pages of Redis hold, by its keys; fields are as in its schema. Each page may be of another moment."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[str, PodLoad, str, float | None]] = {}
        self.nominations: dict[str, tuple[str, PodLoad, str]] = {}
        self.objects: dict[tuple[ObjectKind, str], ClusterObject] = {}
        self.shared_hostnames: list[str] = []
        self._loads: dict[bytes, PodLoad] = {}

    def add(self, key: str, fields: Mapping[str, bytes]) -> None:
        """Fields of one key. ProtocolError if a value cannot be read."""
        match key.partition(":")[0]:
            case "nodes":
                self.nodes.update((name, decode_node(raw)) for name, raw in fields.items())
            case "pods":
                for uid, pod in _stored(fields):
                    self.pods[uid] = (pod.node, self._load(pod), pod.key, pod.started)
            case "nominations":
                for uid, pod in _stored(fields):
                    self.nominations[uid] = (pod.node, self._load(pod), pod.key)
            case "objects":
                for raw in fields.values():
                    obj = decode_object(raw)
                    self.objects[kind_of(obj), key_of(obj)] = obj
            case "cluster" if SHARED_HOSTNAMES in fields:
                self.shared_hostnames = decode_names(fields[SHARED_HOSTNAMES])

    def state(self, epoch: int, seq: int) -> State:
        """Pods on nodes that are not there are left out, as workers do."""
        loads = Loads()
        on_node: dict[str, dict[str, PodOnNode]] = {}
        for uid, (node, load, key, started) in self.pods.items():
            on_node.setdefault(node, {})[uid] = PodOnNode(loads.number(load), key, started)
        nodes = [NodeState(node, on_node.get(name, {})) for name, node in sorted(self.nodes.items())]
        nominations = [
            PodNominated(uid, node, loads.number(load), key) for uid, (node, load, key) in self.nominations.items()
        ]
        objects = list(self.objects.values())
        return State(epoch, seq, nodes, loads.items, objects, nominations, self.shared_hostnames)

    def _load(self, pod: StoredPod) -> PodLoad:
        """Equal loads are one object."""
        raw = bytes(pod.load)
        load = self._loads.get(raw)
        if load is None:
            load = self._loads[raw] = decode_load(raw)
        return load


class Gap(Exception):
    """What of the snapshot's deltas was missed: what was read so far is of no use."""


class Follower:
    """Keeps the deltas of one term of the snapshot from some sequence number on."""

    def __init__(self) -> None:
        self.first = 0
        """The state with this number, and all deltas kept, are the state of now."""
        self.deltas: list[Delta] = []
        self.broken = ""
        self._follower = DeltaFollower()
        self._news = asyncio.Event()

    @property
    def epoch(self) -> int:
        return self._follower.epoch

    @property
    def last(self) -> int:
        return self.first + len(self.deltas)

    def hear(self, message: Delta | Heartbeat, _: Envelope | None = None) -> None:
        if self.broken:
            return
        now = time.monotonic()
        if not self.epoch:
            self.first = message.seq - isinstance(message, Delta)
            self._follower.load(message.epoch, self.first, now)
        self.deltas += self._follower.take(message, now)
        if len(self.deltas) > MAX_DELTAS:
            self.broken = f"more than {MAX_DELTAS} deltas"
        self._check()
        self._news.set()

    async def until(self, seq: int) -> None:
        """Returns once it has heard of the state with this number. Gap if it never will."""
        try:
            async with asyncio.timeout(SILENCE):
                while not self.broken and (not self.epoch or self.last < seq):
                    self._news.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(GAP_PATIENCE):
                            await self._news.wait()
                    self._check()
        except TimeoutError:
            if not self.epoch:
                raise ClusterError("the snapshot is silent: no heartbeat was heard") from None
            raise Gap(f"deltas from {self.last + 1}") from None
        if self.broken:
            raise Gap(self.broken)

    def _check(self) -> None:
        self.broken = self.broken or self._follower.lost(time.monotonic())


class LiveSource:
    """A running pipeline, as of each call. `client`: called each time; it raises ClusterError before there is one."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client

    async def live(self) -> LiveState:
        return await load(self._client())

    async def pods_on(self, node: str) -> list[Pod]:
        return await pods_on(self._client(), node)


async def load(client: Client) -> LiveState:
    """The state as of now, at one sequence number. ClusterError if the pipeline does not answer in time."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await _load(client)
                except Gap:
                    await asyncio.sleep(PAUSE)
    except TimeoutError:
        raise ClusterError(f"the state could not be read within {PATIENCE:g} s ({client.where})") from None


async def _load(client: Client) -> LiveState:
    follower = Follower()
    subscription = await client.bus.subscribe(SNAPSHOT_DELTAS, (Delta, Heartbeat), follower.hear)
    try:
        configuration = await client.request("workers", WORKER_READ, ReadConfiguration(), ConfigurationRead)
        await follower.until(0)
        pending = await pending_pods(client)
        groups = await pod_groups(client)
        builder = StateBuilder()
        shard_count, until = await read_pages(client, follower, builder)
        await follower.until(until)
    finally:
        await subscription.close()
    image = ClusterImage(builder.state(follower.epoch, follower.first))
    for delta in follower.deltas:
        image.apply(delta)
    waiting = [pod for pod in pending if pod.uid not in image.pods]
    placed_since = [pod for pod in pending if pod.uid in image.pods]
    state = image.state(frozenset({0}), 1)
    return LiveState(time.time(), shard_count, state, waiting, configuration, with_placed(groups, placed_since))


async def pending_pods(client: Client) -> list[DescribedPod]:
    """All pods of the queue with their bodies, in its order."""
    pages = client.pages("queue", QUEUE_LIST, ListQueue(bodies=True), QueueListed)
    return [pod async for page in pages for pod in page.pods]


async def pod_groups(client: Client) -> list[LiveGroup]:
    pages = client.pages("queue", QUEUE_LIST, ListGroups(bodies=True), GroupsListed)
    return [live_group(group) async for page in pages for group in page.groups]


def live_group(group: DescribedGroup) -> LiveGroup:
    api = next(each for each in GroupApi if each.partition("/")[0] == group.api)
    above = tuple(each.body for each in group.above)
    return LiveGroup(api, f"{group.namespace}/{group.name}", group.body, group.placed, above)


def with_placed(groups: list[LiveGroup], pods: Iterable[DescribedPod]) -> list[LiveGroup]:
    """The groups with these members, which were placed after the groups were listed."""
    found = {group.ref: group for group in groups}
    for described in pods:
        ref = group_of(pod_from_msgpack(described.body)) if described.body else None
        if ref is not None:
            group = found.get(ref) or LiveGroup(*ref)
            found[ref] = replace(group, placed={**group.placed, described.uid: described.name})
    return list(found.values())


async def pods_on(client: Client, node: str) -> list[Pod]:
    """The unfinished pods on this node, in full. ClusterError if the snapshot cannot list them."""
    found = await _listed(client, ListPodsOn(node), f"of node {node}")
    return [pod_from_msgpack(body) for body in found.bodies]


async def pods_on_all(client: Client) -> dict[str, list[Pod]]:
    """The same of all nodes, page by page."""
    pods: dict[str, list[Pod]] = {}
    after = ""
    while True:
        page = await _listed(client, ListPodsOn(after=after), "on nodes")
        for body in page.bodies:
            pod = pod_from_msgpack(body)
            pods.setdefault(pod.spec.node_name, []).append(pod)
        if not page.next:
            return pods
        after = page.next


async def _listed(client: Client, asked: ListPodsOn, which: str) -> PodsOn:
    silent_at = time.monotonic() + SILENCE
    while True:
        found = await client.request("snapshot", SNAPSHOT_LIST, asked, PodsOn)
        if not found.problem:
            return found
        if time.monotonic() > silent_at:
            raise ClusterError(f"the pods {which} cannot be listed: {found.problem} ({client.where})")
        await asyncio.sleep(PAUSE)


async def read_pages(client: Client, follower: Follower, builder: StateBuilder) -> tuple[int, int]:
    """The number of shards, and the highest number that the state had while it was read."""
    asked, shard_count, until = ReadState(), 0, 0
    while True:
        page = await _page(client, asked, follower)
        shard_count, until = page.shard_count, max(until, page.until)
        for key, fields in page.values.items():
            builder.add(key, fields)
        if not page.key:
            return shard_count, until
        asked = ReadState(page.key, page.position)


async def _page(client: Client, asked: ReadState, follower: Follower) -> StateRead:
    """Redis lags a little behind the deltas: a page is asked for until it includes those that were not heard."""
    silent_at = time.monotonic() + SILENCE
    while True:
        page = await client.request("workers", WORKER_READ, asked, StateRead)
        if follower.broken or page.epoch > follower.epoch:
            raise Gap(follower.broken)
        if not page.problem and page.epoch == follower.epoch and page.seq >= follower.first:
            return page
        if time.monotonic() > silent_at:
            why = page.problem or "Redis does not have the snapshot's newest state"
            raise ClusterError(f"the state cannot be read: {why} ({client.where})")
        await asyncio.sleep(PAUSE)


# In a dump


def save(live: LiveState, folder: Path) -> None:
    """Without the copies of manifests that kubectl keeps, as those have pods' environment."""
    state = replace(live.state, objects=[_without_manifest(obj) for obj in live.state.objects])
    kept = replace(live, state=state, pending=[_without_body_manifest(pod) for pod in live.pending])
    (folder / FILE).write_bytes(msgspec.msgpack.encode(kept, enc_hook=enc_hook))


def _without_body_manifest(described: DescribedPod) -> DescribedPod:
    if LAST_APPLIED.encode() not in described.body:
        return described
    return replace(described, body=encode_msgpack(_without_manifest(pod_from_msgpack(described.body))))


def _without_manifest(obj: T) -> T:
    left = {key: value for key, value in obj.metadata.annotations.items() if key != LAST_APPLIED}
    if len(left) == len(obj.metadata.annotations):
        return obj
    return replace(obj, metadata=replace(obj.metadata, annotations=left))


def save_pods(pods_on: Mapping[str, Sequence[Pod]], folder: Path) -> None:
    """The full pods of nodes."""
    (folder / PODS_FILE).write_bytes(msgspec.msgpack.encode(pods_on, enc_hook=enc_hook))


def read(folder: Path) -> LiveState:
    """The state of a dump. UserError if the folder has none that this release can read."""
    return _read(folder, FILE, _DECODER)


def read_pods(folder: Path, nodes: Iterable[str]) -> dict[str, list[Pod]]:
    """The full pods of these nodes in a dump; UserError likewise."""
    pods_on = _read(folder, PODS_FILE, _PODS_DECODER)
    return {node: pods_on.get(node, []) for node in nodes}


def _read(folder: Path, file: str, decoder: msgspec.msgpack.Decoder[R]) -> R:
    try:
        return decoder.decode((folder / file).read_bytes())
    except OSError as cause:
        why = f"{cause.strerror}; make it by flotilla dump --output {folder}"
        raise UserError(f"{folder / file} cannot be read: {why}") from None
    except ValueError as cause:
        raise UserError(f"{folder / file}: not a state that this release can read: {cause}") from None


_DECODER: msgspec.msgpack.Decoder[LiveState] = msgspec.msgpack.Decoder(LiveState, dec_hook=dec_hook)
_PODS_DECODER: msgspec.msgpack.Decoder[dict[str, list[Pod]]] = msgspec.msgpack.Decoder(
    dict[str, list[Pod]], dec_hook=dec_hook
)


def _stored(fields: Mapping[str, bytes]) -> "list[tuple[str, StoredPod]]":
    return [(uid, decode_pod(raw)) for uid, raw in fields.items()]
