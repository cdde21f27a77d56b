"""Which pod is on which node, assumed or bound, and what the pods of each node use together."""

from collections import Counter
from collections.abc import Collection, ItemsView, Mapping

import msgspec

from shared.errors import InvariantBroken
from shared.messages.state import Loads, PodPlaced, PodState
from shared.model.load import PodLoad
from shared.model.resources import HostPort

_NOTHING: Mapping[str, int] = {}


class Placement(msgspec.Struct, gc=False):
    """`key`: `namespace/name`. `started`: Unix time, if known."""

    node: str
    load: PodLoad
    assumed: bool
    key: str = ""
    started: float | None = None

    def placed(self, uid: str, loads: Loads) -> PodPlaced:
        return PodPlaced(uid, self.node, loads.number(self.load), self.key, self.started)

    def state(self, loads: Loads) -> PodState:
        return PodState(loads.number(self.load), self.key, self.started)


class Placements:
    """A node need not be known: pods of a deleted node count again when it comes back.

    Equal loads are one object: a cluster has far fewer kinds of pods than pods. Sums are kept up to date: the requests
    and host ports of each node's pods, and the users of each claim.
    """

    def __init__(self) -> None:
        self._placements: dict[str, Placement] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._loads: dict[bytes, tuple[PodLoad, list[int]]] = {}
        """By encoded load: the one object for it, and its number of pods."""
        self._requests: dict[str, dict[str, int]] = {}
        self._ports: dict[str, Counter[HostPort]] = {}
        self._users: dict[str, dict[str, None]] = {}

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

    def on_node(self, node: str) -> Collection[str]:
        return self._on_node.get(node, ())

    def count_on(self, node: str) -> int:
        return len(self._on_node.get(node, ()))

    def requests_on(self, node: str) -> Mapping[str, int]:
        """What the pods on a node request together, by resource."""
        return self._requests.get(node, _NOTHING)

    def ports_on(self, node: str) -> Collection[HostPort]:
        return self._ports.get(node, ())

    def users_of(self, claim: str) -> Collection[str]:
        """The placed pods that use the claim of this key."""
        return self._users.get(claim, ())

    def put(
        self, uid: str, node: str, load: PodLoad, key: str = "", started: float | None = None, *, assumed: bool
    ) -> None:
        """Places a pod, or moves it."""
        if uid in self._placements:
            self.remove(uid)
        shared, users = self._loads.setdefault(msgspec.msgpack.encode(load), (load, [0]))
        users[0] += 1
        self._placements[uid] = Placement(node, shared, assumed, key, started)
        self._on_node.setdefault(node, {})[uid] = None
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
        on_node = self._on_node[placement.node]
        del on_node[uid]
        if not on_node:
            del self._on_node[placement.node]
        self._subtract(uid, placement.node, placement.load)

    def _add(self, uid: str, node: str, load: PodLoad) -> None:
        requests = self._requests.setdefault(node, {})
        for resource, amount in load.requests.items():
            requests[resource] = requests.get(resource, 0) + amount
        if load.ports:
            self._ports.setdefault(node, Counter()).update(load.ports)
        for name in load.claims:
            self._users.setdefault(f"{load.namespace}/{name}", {})[uid] = None

    def _subtract(self, uid: str, node: str, load: PodLoad) -> None:
        if node in self._on_node:
            requests = self._requests[node]
            for resource, amount in load.requests.items():
                requests[resource] -= amount
        else:
            del self._requests[node]
        if load.ports:
            self._ports[node] -= Counter(load.ports)
            if not self._ports[node]:
                del self._ports[node]
        for name in dict.fromkeys(load.claims):
            users = self._users[f"{load.namespace}/{name}"]
            del users[uid]
            if not users:
                del self._users[f"{load.namespace}/{name}"]

    def validate(self) -> None:
        indexed = {uid: node for node, uids in self._on_node.items() for uid in uids}
        if indexed != {uid: placement.node for uid, placement in self._placements.items()}:
            raise InvariantBroken("the index of pods by node does not agree with the pods")
        if sum(users[0] for _, users in self._loads.values()) != len(self._placements):
            raise InvariantBroken("loads do not have as many users as there are pods")
        again = Placements()
        for uid, placement in self._placements.items():
            again._on_node.setdefault(placement.node, {})[uid] = None
            again._add(uid, placement.node, placement.load)
        if _without_zeros(self._requests) != _without_zeros(again._requests):
            raise InvariantBroken("the sums of requests by node are wrong")
        if (self._ports, self._users) != (again._ports, again._users):
            raise InvariantBroken("the users of host ports or claims are wrong")


def _without_zeros(by_node: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {node: {name: amount for name, amount in of.items() if amount} for node, of in by_node.items()}
