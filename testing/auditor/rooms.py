"""Rooms: who is on each node, and what they take of it together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shared.errors import InvariantBroken
from testing.auditor.demand import NOTHING, Amounts, Demand, Port, least


@dataclass(slots=True)
class Place:
    """`known`: what the scheduler had to reckon with at least, since somebody else has put or enlarged the pod there.

    That was at `changed`; to a decision that may be older than that, no more than `known` counts.
    """

    demand: Demand
    known: Demand
    changed: float = -math.inf

    def counted(self, since: float) -> Demand:
        return self.known if self.changed >= since else self.demand


class Room:
    """The pods on one node. `totals` is kept with each change; `validate` counts anew."""

    __slots__ = ("places", "ports", "totals")

    def __init__(self) -> None:
        self.totals: Amounts = {}
        self.places: dict[str, Place] = {}
        self.ports: dict[tuple[str, int], list[tuple[str, Port]]] = {}

    def put(self, uid: str, demand: Demand, now: float, *, decided: bool) -> None:
        """`decided` by the scheduler, as opposed to what is there without its doing. Again: it takes so much now."""
        before = self.places.get(uid)
        if before is not None:
            if before.demand == demand:
                return
            self.take(uid)
            self.places[uid] = Place(demand, least(before.demand, demand), now)
        else:
            self.places[uid] = Place(demand, demand) if decided else Place(demand, NOTHING, now)
        for name, amount in demand.amounts.items():
            self.totals[name] = self.totals.get(name, 0) + amount
        for port in demand.ports:
            self.ports.setdefault((port.protocol, port.number), []).append((uid, port))

    def take(self, uid: str) -> None:
        demand = self.places.pop(uid).demand
        for name, amount in demand.amounts.items():
            self.totals[name] -= amount
        for port in demand.ports:
            key = (port.protocol, port.number)
            left = [user for user in self.ports.get(key, ()) if user[0] != uid]
            if left:
                self.ports[key] = left
            else:
                self.ports.pop(key, None)

    def counted(self, since: float) -> Amounts:
        """The totals that a decision after `since` had to reckon with."""
        totals: Amounts = {}
        for place in self.places.values():
            for name, amount in place.counted(since).amounts.items():
                totals[name] = totals.get(name, 0) + amount
        return totals

    def port_clash(self, uid: str, wanted: Demand, since: float) -> tuple[str, Port] | None:
        """Another pod on the node and the port that it has taken from this one."""
        for port in wanted.ports:
            for other, taken in self.ports.get((port.protocol, port.number), ()):
                if other != uid and taken.clashes_with(port) and taken in self.places[other].counted(since).ports:
                    return other, taken
        return None

    def validate(self, name: str) -> None:
        recount: Amounts = {}
        users: list[tuple[str, Port]] = []
        for uid, place in self.places.items():
            for resource, amount in place.demand.amounts.items():
                recount[resource] = recount.get(resource, 0) + amount
            users += [(uid, port) for port in place.demand.ports]
        if {resource: amount for resource, amount in self.totals.items() if amount} != _positive(recount):
            raise InvariantBroken(f"node {name}: totals are {self.totals}, counted anew {recount}")
        indexed = [user for of_number in self.ports.values() for user in of_number]
        if sorted(indexed, key=repr) != sorted(users, key=repr):
            raise InvariantBroken(f"node {name}: the index of ports does not agree with the pods")


def excess(wanted: Mapping[str, int], totals: Mapping[str, int], allocatable: Mapping[str, int]) -> dict[str, float]:
    """Where the totals exceed what there is, of the resources that are wanted: both numbers, by name."""
    numbers: dict[str, float] = {}
    for name, amount in wanted.items():
        if amount and totals.get(name, 0) > allocatable.get(name, 0):
            numbers[f"{name} requested"] = totals[name]
            numbers[f"{name} allocatable"] = allocatable.get(name, 0)
    return numbers


def _positive(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}
