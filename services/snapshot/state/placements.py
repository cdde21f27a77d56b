"""Which pod is on which node, assumed or bound, and what the pods of each node use together."""

from collections import Counter
from collections.abc import Collection, ItemsView

import msgspec

from shared.cluster.eviction_units import group_key
from shared.errors import InvariantBroken
from shared.messages.state import Loads, PodOnNode, PodPlaced
from shared.model.load import PodLoad
from shared.model.resources import HostPort


class NodeUse(msgspec.Struct, gc=False):
    """What the pods of a node use together. `requests`: by resource; may have zeros."""

    requests: dict[str, int] = msgspec.field(default_factory=dict)
    ports: Counter[HostPort] = msgspec.field(default_factory=Counter)

    def add(self, load: PodLoad) -> None:
        requests = self.requests
        for resource, amount in load.requests.items():
            requests[resource] = requests.get(resource, 0) + amount
        if load.ports:
            self.ports.update(load.ports)

    def subtract(self, load: PodLoad) -> None:
        for resource, amount in load.requests.items():
            self.requests[resource] -= amount
        if load.ports:
            self.ports -= Counter(load.ports)


NO_PODS: Collection[str] = ()
NO_USE = NodeUse()


class Placement(msgspec.Struct, gc=False):
    """`key`: `namespace/name`. `started`: Unix time, if known. `shown`: the watch has shown the pod on this node."""

    node: str
    load: PodLoad
    assumed: bool
    key: str = ""
    started: float | None = None
    shown: bool = False

    def placed(self, uid: str, loads: Loads) -> PodPlaced:
        return PodPlaced(uid, self.node, loads.number(self.load), self.key, self.started)

    def state(self, loads: Loads) -> PodOnNode:
        return PodOnNode(loads.number(self.load), self.key, self.started)


class _Shared(msgspec.Struct, gc=False):
    """A load, and how many pods have it."""

    encoded: bytes
    load: PodLoad
    pods: int = 0


class Placements:
    """A node need not be known: pods of a deleted node count again when it comes back.

    Equal loads are one object: a cluster has far fewer kinds of pods than pods. Sums are kept up to date: the users of
    each claim, the pods of each PodGroup, and what the pods use together of each node that was asked about.
    """

    def __init__(self) -> None:
        self._placements: dict[str, Placement] = {}
        self._on_nodes: dict[str, dict[str, None]] = {}
        """By node, the uids of its pods."""
        self._uses: dict[str, NodeUse] = {}
        """Of nodes with pods that were asked about."""
        self._by_encoding: dict[bytes, _Shared] = {}
        self._by_identity: dict[int, _Shared] = {}
        """The same, by the identity of the one object for the load."""
        self._users: dict[str, dict[str, None]] = {}
        self._of_groups: dict[str, dict[str, None]] = {}
        """Placed pods by PodGroup of scheduling.k8s.io, `namespace/name`."""

    def __len__(self) -> int:
        return len(self._placements)

    def __contains__(self, uid: str) -> bool:
        return uid in self._placements

    def __getitem__(self, uid: str) -> Placement:
        return self._placements[uid]

    def get(self, uid: str) -> Placement | None:
        return self._placements.get(uid)

    def items(self) -> ItemsView[str, Placement]:
        return self._placements.items()

    def copied(self) -> dict[str, Placement]:
        """Node, load, key and start time of a Placement never change."""
        return self._placements.copy()

    def use_of(self, node: str) -> NodeUse:
        """Read only."""
        if node not in self._on_nodes:
            return NO_USE
        use = self._uses.get(node)
        if use is None:
            use = self._uses[node] = self._count_use(node)
        return use

    def on_node(self, node: str) -> Collection[str]:
        return self._on_nodes.get(node, NO_PODS)

    def users_of(self, claim: str) -> Collection[str]:
        """The placed pods that use the claim of this key."""
        return self._users.get(claim, ())

    def of_group(self, group: str) -> Collection[str]:
        """The placed pods of this PodGroup."""
        return self._of_groups.get(group, ())

    def put(
        self,
        uid: str,
        node: str,
        load: PodLoad,
        key: str = "",
        started: float | None = None,
        *,
        assumed: bool,
        shown: bool = False,
    ) -> None:
        """Places a pod, or moves it."""
        if uid in self._placements:
            self.remove(uid)
        shared = self._by_identity.get(id(load)) or self._share(load)
        shared.pods += 1
        self._placements[uid] = Placement(node, shared.load, assumed, key, started, shown)
        self._add(uid, node, shared.load)

    def set_load(self, uid: str, load: PodLoad) -> Placement:
        before = self._placements[uid]
        self.put(uid, before.node, load, before.key, before.started, assumed=before.assumed, shown=before.shown)
        return self._placements[uid]

    def remove(self, uid: str) -> None:
        placement = self._placements.pop(uid)
        shared = self._by_identity[id(placement.load)]
        shared.pods -= 1
        if not shared.pods:
            del self._by_encoding[shared.encoded], self._by_identity[id(placement.load)]
        self._subtract(uid, placement.node, placement.load)

    def _share(self, load: PodLoad) -> _Shared:
        """The one object for loads that are equal to this one."""
        encoded = msgspec.msgpack.encode(load)
        shared = self._by_encoding.get(encoded)
        if shared is None:
            shared = self._by_encoding[encoded] = self._by_identity[id(load)] = _Shared(encoded, load)
        return shared

    def _count_use(self, node: str) -> NodeUse:
        use = NodeUse()
        for uid in self.on_node(node):
            use.add(self._placements[uid].load)
        return use

    def _add(self, uid: str, node: str, load: PodLoad) -> None:
        uids = self._on_nodes.get(node)
        if uids is None:
            uids = self._on_nodes[node] = {}
        uids[uid] = None
        if (use := self._uses.get(node)) is not None:
            use.add(load)
        for name in load.claims:
            self._users.setdefault(f"{load.namespace}/{name}", {})[uid] = None
        if load.group:
            self._of_groups.setdefault(group_key(load), {})[uid] = None

    def _subtract(self, uid: str, node: str, load: PodLoad) -> None:
        uids = self._on_nodes[node]
        del uids[uid]
        if not uids:
            del self._on_nodes[node]
            self._uses.pop(node, None)
        elif (use := self._uses.get(node)) is not None:
            use.subtract(load)
        for name in dict.fromkeys(load.claims):
            users = self._users[f"{load.namespace}/{name}"]
            del users[uid]
            if not users:
                del self._users[f"{load.namespace}/{name}"]
        if load.group:
            fellows = self._of_groups[group_key(load)]
            del fellows[uid]
            if not fellows:
                del self._of_groups[group_key(load)]

    def validate(self) -> None:
        if sum(shared.pods for shared in self._by_encoding.values()) != len(self._placements):
            raise InvariantBroken("loads do not have as many users as there are pods")
        if {id(shared.load): shared for shared in self._by_encoding.values()} != self._by_identity:
            raise InvariantBroken("the index of loads by identity is wrong")
        again = Placements()
        for uid, placement in self._placements.items():
            again._add(uid, placement.node, placement.load)
        if self._on_nodes != again._on_nodes:
            raise InvariantBroken("the index of pods by node does not agree with the pods")
        for name, use in self._uses.items():
            counted = self._count_use(name)
            if Counter(use.requests) != Counter(counted.requests):  # counters are equal if only zeros are missing
                raise InvariantBroken("the sums of requests by node are wrong")
            if use.ports != counted.ports:
                raise InvariantBroken("the users of host ports are wrong")
        if self._of_groups != again._of_groups:
            raise InvariantBroken("the placed pods of groups are counted wrongly")
        if self._users != again._users:
            raise InvariantBroken("the users of claims are wrong")
