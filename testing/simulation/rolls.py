"""Rolls: the leader of each service ends in turn while pods come, as in an upgrade, and every pod is bound soon.

There is room for every pod, and nothing else goes wrong, so a pod waits for nothing but the pipeline.
"""

from functools import partial

from shared.messages.watch import Kind
from shared.model.objects import Node, Pod
from testing.builders import node, pod
from testing.simulation.actions import HOST, ZONE
from testing.simulation.apiserver import Change
from testing.simulation.drawing import NODES, TROUBLE_BEGINS
from testing.simulation.schedule import Entry, Schedule
from testing.simulation.world import World

BOUND_WITHIN = 0.3
"""Seconds from a pod's creation until it is bound, at most."""
BURST, BURST_EVERY = 24, 0.04
"""Pods that are created from each end of a leader on, and the seconds between them."""
STARTED = TROUBLE_BEGINS + 2.0
"""Seconds after which the pipeline has started."""


class RollWorld(World):
    """`longest`: seconds that any pod has waited until it was bound."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.longest = 0.0
        self._created: dict[str, float] = {}
        """When each pod was created, by uid."""
        self.server.followers.append(self._on_change)
        self.server.on_bind.append(self._on_bound)

    def _node(self, name: str) -> Node:
        zone = f"z{NODES.index(name) % 3}"
        return node(name).label({ZONE: zone, HOST: name}).capacity(cpu=400, memory="800Gi").build()

    def happen(self, entry: Entry) -> None:
        super().happen(entry)
        for number in range(BURST if entry.what == "roll" else 0):
            self.later(number * BURST_EVERY, partial(self._create_small, f"{entry.number}-{number}"))

    def _create_small(self, part: str) -> None:
        self.server.put_pod(pod(f"p{part}").uid(f"u{part}").request(cpu="100m", memory="100Mi").build())

    def _broken(self) -> list[str]:
        pending = (each for each in self.server.pods.values() if not each.spec.node_name)
        late = ((each, waited) for each in pending if (waited := self._waited(each)) > BOUND_WITHIN)
        return [*super()._broken(), *(f"{each.name} ({each.uid}) waits for {waited:.2f} s" for each, waited in late)]

    def _on_change(self, change: Change) -> None:
        if change.kind is Kind.POD and change.type == "ADDED":
            self._created[change.key] = self.now

    def _on_bound(self, bound: Pod) -> None:
        self.longest = max(self.longest, self._waited(bound))
        if self._waited(bound) > BOUND_WITHIN:
            self._report(f"{bound.name} ({bound.uid}) was bound after {self._waited(bound):.2f} s")

    def _waited(self, created: Pod) -> float:
        return self.now - max(self._created[created.uid], STARTED)
