"""Which pod is on which node, assumed or bound, and what the pods of each node use together."""

from collections import Counter
from collections.abc import Collection, ItemsView, Iterator

import msgspec

from shared.errors import InvariantBroken
from shared.messages.state import Loads, PodOnNode, PodPlaced
from shared.model.load import PodLoad
from shared.model.resources import HostPort


class NodeUse(msgspec.Struct, gc=False):
    """What the pods of a node use together. `requests`: by resource; may have zeros."""

    uids: dict[str, None] = msgspec.field(default_factory=dict)
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    ports: Counter[HostPort] = msgspec.field(default_factory=Counter)


NOTHING = NodeUse()


class Placement(msgspec.Struct, gc=False):
    """`key`: `namespace/name`. `started`: Unix time, if known."""

    node: str
    load: PodLoad
    assumed: bool
    key: str = ""
    started: float | None = None

    def placed(self, uid: str, loads: Loads) -> PodPlaced:
        return PodPlaced(uid, self.node, loads.number(self.load), self.key, self.started)

    def state(self, loads: Loads) -> PodOnNode:
        return PodOnNode(loads.number(self.load), self.key, self.started)


class Placements:
    """A node need not be known: pods of a deleted node count again when it comes back.

    Equal loads are one object: a cluster has far fewer kinds of pods than pods. Sums are kept up to date: the requests
    and host ports of each node's pods, the users of each claim, and the pods of each PodGroup.
    """

    def __init__(self) -> None:
        self._placements: dict[str, Placement] = {}
        self._nodes: dict[str, NodeUse] = {}
        self._loads: dict[bytes, tuple[PodLoad, list[int]]] = {}
        """By encoded load: the one object for it, and its number of pods."""
        self._users: dict[str, dict[str, None]] = {}
        self._of_groups: Counter[str] = Counter()
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

    def use_of(self, node: str) -> NodeUse:
        """Read only."""
        return self._nodes.get(node, NOTHING)

    def on_node(self, node: str) -> Collection[str]:
        return self.use_of(node).uids

    def by_node(self) -> Iterator[tuple[str, Collection[str]]]:
        """All nodes with pods, known or not, and the uids of these."""
        return ((node, use.uids) for node, use in self._nodes.items())

    def users_of(self, claim: str) -> Collection[str]:
        """The placed pods that use the claim of this key."""
        return self._users.get(claim, ())

    def has_of_group(self, group: str) -> bool:
        """Whether a pod of this PodGroup is placed."""
        return group in self._of_groups

    def put(
        self, uid: str, node: str, load: PodLoad, key: str = "", started: float | None = None, *, assumed: bool
    ) -> None:
        """Places a pod, or moves it."""
        if uid in self._placements:
            self.remove(uid)
        shared, users = self._loads.setdefault(msgspec.msgpack.encode(load), (load, [0]))
        users[0] += 1
        self._placements[uid] = Placement(node, shared, assumed, key, started)
        self._add(uid, node, shared)

    def set_load(self, uid: str, load: PodLoad) -> Placement:
        before = self._placements[uid]
        self.put(uid, before.node, load, before.key, before.started, assumed=before.assumed)
        return self._placements[uid]

    def remove(self, uid: str) -> None:
        placement = self._placements.pop(uid)
        encoded = msgspec.msgpack.encode(placement.load)
        users = self._loads[encoded][1]
        users[0] -= 1
        if not users[0]:
            del self._loads[encoded]
        self._subtract(uid, placement.node, placement.load)

    def _add(self, uid: str, node: str, load: PodLoad) -> None:
        use = self._nodes.get(node)
        if use is None:
            use = self._nodes[node] = NodeUse()
        use.uids[uid] = None
        requests = use.requests
        for resource, amount in load.requests.items():
            requests[resource] = requests.get(resource, 0) + amount
        if load.ports:
            use.ports.update(load.ports)
        for name in load.claims:
            self._users.setdefault(f"{load.namespace}/{name}", {})[uid] = None
        if load.group:
            self._of_groups[f"{load.namespace}/{load.group}"] += 1

    def _subtract(self, uid: str, node: str, load: PodLoad) -> None:
        use = self._nodes[node]
        del use.uids[uid]
        if not use.uids:
            del self._nodes[node]
        else:
            for resource, amount in load.requests.items():
                use.requests[resource] -= amount
            if load.ports:
                use.ports -= Counter(load.ports)
        for name in dict.fromkeys(load.claims):
            users = self._users[f"{load.namespace}/{name}"]
            del users[uid]
            if not users:
                del self._users[f"{load.namespace}/{name}"]
        if load.group:
            group = f"{load.namespace}/{load.group}"
            self._of_groups[group] -= 1
            if not self._of_groups[group]:
                del self._of_groups[group]

    def validate(self) -> None:
        if sum(users[0] for _, users in self._loads.values()) != len(self._placements):
            raise InvariantBroken("loads do not have as many users as there are pods")
        again = Placements()
        for uid, placement in self._placements.items():
            again._add(uid, placement.node, placement.load)
        for name in self._nodes.keys() | again._nodes.keys():
            use, counted = self.use_of(name), again.use_of(name)
            if use.uids.keys() != counted.uids.keys():
                raise InvariantBroken("the index of pods by node does not agree with the pods")
            if Counter(use.requests) != Counter(counted.requests):  # counters are equal if only zeros are missing
                raise InvariantBroken("the sums of requests by node are wrong")
            if use.ports != counted.ports:
                raise InvariantBroken("the users of host ports are wrong")
        if self._of_groups != again._of_groups:
            raise InvariantBroken("the placed pods of groups are counted wrongly")
        if self._users != again._users:
            raise InvariantBroken("the users of claims are wrong")
