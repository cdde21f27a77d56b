"""Places: which pod is where, assumed or bound, by pod and by node."""

from collections import Counter
from collections.abc import Collection, ItemsView, Mapping

import msgspec

from shared.errors import InvariantBroken
from shared.messages.loads import Loads
from shared.messages.state import PodPlaced, PodState
from shared.model.load import PodLoad
from shared.model.resources import HostPort


class Place(msgspec.Struct, gc=False):
    """`key`: `namespace/name`. `started`: Unix time, if that is known."""

    node: str
    load: PodLoad
    assumed: bool
    key: str = ""
    started: float | None = None

    def told(self, uid: str, loads: Loads) -> PodPlaced:
        return PodPlaced(uid, self.node, loads.number(self.load), self.key, self.started)

    def state(self, loads: Loads) -> PodState:
        return PodState(loads.number(self.load), self.key, self.started)


class Places:
    """A node need not be known: pods of a node that is gone are there again when it is.

    Equal loads are one object: a cluster has far fewer kinds of pods than pods. Sums are kept up to date: what the pods
    of each node request, the host ports taken there, and who uses which claim.
    """

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._loads: dict[bytes, tuple[PodLoad, list[int]]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._ports: dict[str, Counter[HostPort]] = {}
        self._users: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, uid: str) -> bool:
        return uid in self._places

    def __getitem__(self, uid: str) -> Place:
        return self._places[uid]

    def get(self, uid: str) -> Place | None:
        return self._places.get(uid)

    def items(self) -> ItemsView[str, Place]:
        return self._places.items()

    def on_node(self, node: str) -> Collection[str]:
        return self._on_node.get(node, ())

    def count_at(self, node: str) -> int:
        return len(self._on_node.get(node, ()))

    def used_at(self, node: str) -> Mapping[str, int]:
        """What the pods on a node request together, by resource."""
        return self._used.get(node, _NOTHING)

    def ports_at(self, node: str) -> Collection[HostPort]:
        """The host ports that are taken on a node."""
        return self._ports.get(node, ())

    def users_of(self, claim: str) -> Collection[str]:
        """The pods with a place that use the claim of this key."""
        return self._users.get(claim, ())

    def put(
        self, uid: str, node: str, load: PodLoad, key: str = "", started: float | None = None, *, assumed: bool
    ) -> None:
        """Also for a pod that has another place: it leaves that."""
        if uid in self._places:
            self.take(uid)
        shared, users = self._loads.setdefault(msgspec.msgpack.encode(load), (load, [0]))
        users[0] += 1
        self._places[uid] = Place(node, shared, assumed, key, started)
        self._on_node.setdefault(node, {})[uid] = None
        self._count(uid, node, shared)

    def take(self, uid: str) -> None:
        place = self._places.pop(uid)
        key = msgspec.msgpack.encode(place.load)
        users = self._loads[key][1]
        users[0] -= 1
        if not users[0]:
            del self._loads[key]
        on_node = self._on_node[place.node]
        del on_node[uid]
        if not on_node:
            del self._on_node[place.node]
        self._discount(uid, place.node, place.load)

    def _count(self, uid: str, node: str, load: PodLoad) -> None:
        used = self._used.setdefault(node, {})
        for resource, amount in load.requests.items():
            used[resource] = used.get(resource, 0) + amount
        if load.ports:
            self._ports.setdefault(node, Counter()).update(load.ports)
        for name in load.claims:
            self._users.setdefault(f"{load.namespace}/{name}", {})[uid] = None

    def _discount(self, uid: str, node: str, load: PodLoad) -> None:
        if node in self._on_node:
            used = self._used[node]
            for resource, amount in load.requests.items():
                used[resource] -= amount
        else:
            del self._used[node]
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
        if indexed != {uid: place.node for uid, place in self._places.items()}:
            raise InvariantBroken("the index of pods by node does not agree with the pods")
        if sum(users[0] for _, users in self._loads.values()) != len(self._places):
            raise InvariantBroken("the users of loads are not as many as the pods")
        self._validate_sums()

    def _validate_sums(self) -> None:
        again = Places()
        for uid, place in self._places.items():
            again._on_node.setdefault(place.node, {})[uid] = None
            again._count(uid, place.node, place.load)
        used = {node: {name: amount for name, amount in of.items() if amount} for node, of in self._used.items()}
        counted = {node: {name: amount for name, amount in of.items() if amount} for node, of in again._used.items()}
        if used != counted:
            raise InvariantBroken("what the pods of a node request is not what was added up")
        if (self._ports, self._users) != (again._ports, again._users):
            raise InvariantBroken("the users of host ports or claims are not those that were counted")


_NOTHING: Mapping[str, int] = {}
