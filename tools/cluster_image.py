"""ClusterImage: the cluster's whole state as the deltas change it, and how to take each change back."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shared.cluster.nodetable import shard_of
from shared.messages.state import (
    Change,
    Delta,
    Loads,
    NodeRemoved,
    NodeState,
    NodeUpserted,
    NominationGone,
    ObjectRemoved,
    ObjectUpserted,
    PodGone,
    PodNominated,
    PodOnNode,
    PodPlaced,
    SharedHostnames,
    State,
)
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, ObjectKind, encode_msgpack, key_of, kind_of


@dataclass(frozen=True, slots=True)
class PlacedPod:
    node: str
    load: PodLoad
    key: str
    started: float | None


@dataclass(frozen=True, slots=True)
class NominatedPod:
    node: str
    load: PodLoad
    key: str


class ClusterImage:
    def __init__(self, state: State) -> None:
        """`state`: of all shards."""
        self.epoch = state.epoch
        self.seq = state.seq
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, PlacedPod] = {}
        self.on_node: dict[str, dict[str, None]] = {}
        """The uids of each node's pods."""
        self.objects: dict[tuple[ObjectKind, str], ClusterObject] = {}
        self.nominations: dict[str, NominatedPod] = {}
        self.shared_hostnames = state.shared_hostnames
        self._loads: dict[bytes, PodLoad] = {}
        """Each load once: most pods share theirs."""
        loads = self._shared(state.loads)
        for each in state.nodes:
            self.nodes[each.node.name] = each.node
            self.on_node[each.node.name] = {}
            for uid, pod in each.pods.items():
                self._place(uid, PlacedPod(each.node.name, loads[pod.load], pod.key, pod.started))
        for obj in state.objects:
            self.objects[kind_of(obj), key_of(obj)] = obj
        for nominated in state.nominations:
            load = loads[nominated.load]
            self.nominations[nominated.uid] = NominatedPod(nominated.node, load, nominated.key)

    def apply(self, delta: Delta) -> Delta:
        """Applies the delta after this state; returns what takes it back."""
        before, loads = Loads(), self._shared(delta.loads)
        undo = [self._apply(change, loads, before) for change in delta.changes]
        seq, self.seq = self.seq, delta.seq
        return Delta(delta.epoch, seq, [each for changes in reversed(undo) for each in changes], before.items)

    def state(self, shards: frozenset[int], shard_count: int) -> State:
        """As a worker of these shards loads it."""
        loads = Loads()
        nodes = [
            NodeState(node, {uid: self._on_node(uid, loads) for uid in self.on_node[name]})
            for name, node in self.nodes.items()
            if shard_of(name, shard_count) in shards
        ]
        nominations = [
            PodNominated(uid, each.node, loads.number(each.load), each.key) for uid, each in self.nominations.items()
        ]
        hostnames = self.shared_hostnames
        return State(self.epoch, self.seq, nodes, loads.items, list(self.objects.values()), nominations, hostnames)

    def _shared(self, loads: Iterable[PodLoad]) -> list[PodLoad]:
        return [self._loads.setdefault(encode_msgpack(load), load) for load in loads]

    def _on_node(self, uid: str, loads: Loads) -> PodOnNode:
        pod = self.pods[uid]
        return PodOnNode(loads.number(pod.load), pod.key, pod.started)

    def _apply(self, change: Change, loads: list[PodLoad], before: Loads) -> list[Change]:
        match change:
            case PodPlaced(uid=uid, node=node, load=load, key=key, started=started):
                undo = self._restoring(uid, before)
                self._remove(uid)
                if node in self.nodes:
                    self._place(uid, PlacedPod(node, loads[load], key, started))
                return undo
            case PodGone(uid=uid):
                undo = self._restoring(uid, before)
                self._remove(uid)
                return undo
            case NodeUpserted(node=node):
                known = self.nodes.get(node.name)
                self.nodes[node.name] = node
                self.on_node.setdefault(node.name, {})
                return [NodeRemoved(node.name) if known is None else NodeUpserted(known)]
            case NodeRemoved(name=name):
                return [*self._remove_node(name, before)]
            case PodNominated(uid=uid, node=node, load=load, key=key):
                undo = [self._renominating(uid, before)]
                self.nominations[uid] = NominatedPod(node, loads[load], key)
                return undo
            case NominationGone(uid=uid):
                undo = [self._renominating(uid, before)]
                self.nominations.pop(uid, None)
                return undo
            case SharedHostnames(values=values):
                shared, self.shared_hostnames = self.shared_hostnames, values
                return [SharedHostnames(shared)]
            case ObjectUpserted(object=obj):
                key_ = kind_of(obj), key_of(obj)
                shown, self.objects[key_] = self.objects.get(key_), obj
                return [ObjectRemoved(*key_) if shown is None else ObjectUpserted(shown)]
            case ObjectRemoved(kind=kind, key=key):
                gone = self.objects.pop((kind, key), None)
                return [] if gone is None else [ObjectUpserted(gone)]

    def _place(self, uid: str, pod: PlacedPod) -> None:
        self.pods[uid] = pod
        self.on_node[pod.node][uid] = None

    def _remove(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            del self.on_node[pod.node][uid]

    def _remove_node(self, name: str, before: Loads) -> Iterator[Change]:
        """Its pods go with it."""
        node = self.nodes.pop(name, None)
        if node is None:
            return
        yield NodeUpserted(node)
        for uid in list(self.on_node[name]):
            yield from self._restoring(uid, before)
            self._remove(uid)
        del self.on_node[name]

    def _restoring(self, uid: str, before: Loads) -> list[Change]:
        pod = self.pods.get(uid)
        if pod is None:
            return [PodGone(uid)]
        return [PodPlaced(uid, pod.node, before.number(pod.load), pod.key, pod.started)]

    def _renominating(self, uid: str, before: Loads) -> Change:
        known = self.nominations.get(uid)
        if known is None:
            return NominationGone(uid)
        return PodNominated(uid, known.node, before.number(known.load), known.key)
