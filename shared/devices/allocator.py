"""Allocator: slices, classes and what is in use, for searches on any node.

A search is shared by claims that ask for the same, whatever their names, and by nodes whose devices are alike to these
claims and in use alike. So of a thousand pods of one template on a thousand equal nodes one is searched, and the result
is carried over to the devices at the same indices. Attributes that no claim asks about, such as serial numbers, tell no
devices apart.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import msgspec

from shared.bounded import BoundedDict
from shared.devices.constraints import constraints_of
from shared.devices.errors import OutOfSteps
from shared.devices.extended import ClassesByResource
from shared.devices.offers import OfferedDevice, PoolId, without_sharing
from shared.devices.pools import DeviceNode, Pool, Slices, remaining_counters
from shared.devices.requests import PreparedRequest, prepare
from shared.devices.results import CANNOT_ALLOCATE, INVALID_POOLS, allocations, score_of
from shared.devices.search import Search, Solution, Taken
from shared.devices.selectors import Evaluate, Selectors, behaviour, may_match
from shared.devices.state import DeviceState
from shared.model.codec import encode_msgpack
from shared.model.devices import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice

MAX_SEARCHES = 1 << 14
"""Results of searches kept, each for what claims ask for and a shape of node."""
MAX_SHAPES = 1 << 16
"""Distinct combinations of devices kept, to compare nodes by a number."""
MAX_WANTED = 64
"""Distinct sets of claims for which every node keeps how its devices look to them."""


class NodeDevices(msgspec.Struct, frozen=True, eq=False):
    """What a node's pools offer at present.

    `usage` is equal for nodes with as many devices in use alike at the same indices; `looks`, by number of what claims
    ask for, for nodes with devices alike to these claims at the same indices.
    """

    node: DeviceNode
    pools: tuple[Pool, ...]
    devices: tuple[OfferedDevice, ...]
    usage: int
    looks: dict[int, int]
    slices_version: tuple[int, int]
    pool_versions: tuple[int, ...]


class Step(msgspec.Struct, eq=False):
    """The result of a search: a solution, and by claim the indices of its devices on the node; or why there is none.

    `score`: how early the chosen alternatives are in their lists. `following`: the result of the same search once these
    devices are taken, when it is known.
    """

    found: Solution | None = None
    indices: list[list[int]] = []
    score: int = 0
    out_of_steps: bool = False
    following: "Step | None" = None


class Wanted(msgspec.Struct, frozen=True, eq=False):
    """What claims ask for, however they are named. `attributes`: those that constraints compare."""

    number: int
    requests: list[PreparedRequest]
    attributes: list[str]


class Allocator:
    """`evaluate`: see `Selectors`. Nodes are described by the caller, and forgotten by `forget_node`.

    `searches`: how many were run.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self.searches = 0
        self.state = DeviceState()
        self.classes: dict[str, DeviceClass] = {}
        self.by_resource = ClassesByResource(())
        self.selectors = Selectors(evaluate)
        self.slices = Slices()
        self._pool_versions: dict[PoolId, int] = {}
        self._nodes: dict[str, NodeDevices] = {}
        self._shapes: BoundedDict[Hashable, int] = BoundedDict(MAX_SHAPES)
        self._wanted: BoundedDict[tuple[bytes, ...], Wanted] = BoundedDict(MAX_WANTED)
        self._reaching: BoundedDict[int, tuple[int, bool]] = BoundedDict(MAX_WANTED)
        self._numbers = count()
        self._searches: BoundedDict[tuple[int, int, int], Step] = BoundedDict(MAX_SEARCHES)

    # What there is

    def put_slice(self, resource_slice: ResourceSlice) -> None:
        self.slices.put(resource_slice)

    def remove_slice(self, name: str) -> None:
        self.slices.remove(name)

    def put_class(self, device_class: DeviceClass) -> None:
        self.classes[device_class.name] = device_class
        self._classes_changed()

    def remove_class(self, name: str) -> None:
        if self.classes.pop(name, None) is not None:
            self._classes_changed()

    def forget_node(self, name: str) -> None:
        self._nodes.pop(name, None)

    def nodes_of(self, pools: Iterable[PoolId]) -> frozenset[str] | None:
        """The nodes whose searches depend on these pools; None if it may be any node."""
        nodes: set[str] = set()
        for pool in pools:
            of_pool = self.slices.nodes_of(pool)
            if of_pool is None:
                return None
            nodes |= of_pool
        return frozenset(nodes)

    def add(self, allocation: AllocationResult) -> None:
        self.state.add(allocation)
        self._used(allocation)

    def remove(self, allocation: AllocationResult) -> None:
        """Undo `add` of an equal allocation."""
        self.state.remove(allocation)
        self._used(allocation)

    # Decisions

    def devices_of(self, node: DeviceNode) -> NodeDevices:
        known = self._nodes.get(node.name)
        if known is not None and known.slices_version == self.slices.version(node.name) and known.node == node:
            if known.pool_versions == self._versions(known.pools):
                return known
            pools, looks = known.pools, known.looks
        else:
            pools, looks = self.slices.pools_for(node), {}
        devices = tuple(device for pool in pools if pool.usable for device in pool.devices)
        usage = self._usage_of(pools)
        fresh = NodeDevices(node, pools, devices, usage, looks, self.slices.version(node.name), self._versions(pools))
        self._nodes[node.name] = fresh
        return fresh

    def step(self, node: DeviceNode, claims: Sequence[ResourceClaim], earlier: int = 0) -> Step | str:
        """What the claims get, or why the node has nothing for them; raises AllocationError if the attempt is to end.

        `earlier`: how many equal sets of claims were served by the node before, though the state does not show it.
        """
        here = self.devices_of(node)
        wanted = self._wanted_by(claims)
        step = self._step(here, wanted, claims)
        taken: list[Step] = []
        while len(taken) < earlier and step.found is not None:
            taken.append(step)
            if step.following is None:
                with self._assumed(here, claims, taken):
                    step.following = self._step(self.devices_of(node), wanted, claims)
            step = step.following
        if step.out_of_steps:
            raise OutOfSteps(node.name)
        if step.found is None:
            return INVALID_POOLS if any(pool.invalid for pool in here.pools) else CANNOT_ALLOCATE
        return step

    def reach_over_nodes(self, claims: Sequence[ResourceClaim]) -> bool:
        """Whether the claims may get a device of a pool that several nodes see."""
        wanted, changes = self._wanted_by(claims), self.slices.changes
        known = self._reaching.get(wanted.number)
        if known is None or known[0] != changes:
            found = any(
                may_match(request, device, self.selectors)
                for device in self.slices.reaching_devices()
                for request in wanted.requests
            )
            known = self._reaching[wanted.number] = changes, found
        return known[1]

    def allocations(self, node: DeviceNode, claims: Sequence[ResourceClaim], step: Step) -> list[AllocationResult]:
        """The allocation of each claim, for a step of this node."""
        return _allocations(self.devices_of(node), claims, step)

    def class_totals(self, node: DeviceNode, device_class: DeviceClass) -> tuple[int, int]:
        """How many devices of the class the node has, and how many of them are allocated: for NodeResourcesFit's score.

        As in kube-scheduler, every slice counts, selectors see no device as shareable, and an error counts as none.
        """
        found = used = 0
        for device in self.slices.for_score(node):
            matches = self.selectors.match(device_class.spec.selectors, without_sharing(device))
            if isinstance(matches, str):
                return 0, 0
            found += matches
            used += matches and self.state.is_allocated(device.id)
        return found, used

    def _step(self, here: NodeDevices, wanted: Wanted, claims: Sequence[ResourceClaim]) -> Step:
        key = (wanted.number, self._look_of(here, wanted), here.usage)
        return self._searches.obtain(key, lambda: self._search(here, claims))

    def _search(self, here: NodeDevices, claims: Sequence[ResourceClaim]) -> Step:
        self.searches += 1
        try:
            found = Search(here.node, here.pools, claims, self.state, self.classes, self.selectors).run()
        except OutOfSteps:
            return Step(out_of_steps=True)
        return Step() if found is None else Step(found, _indices(found, here.devices), score_of(found))

    @contextmanager
    def _assumed(self, here: NodeDevices, claims: Sequence[ResourceClaim], steps: Sequence[Step]) -> Iterator[None]:
        """Count what these steps take of the node as in use; on exit, everything is as it was."""
        taken = [each for step in steps for each in _allocations(here, claims, step)]
        versions = self._pool_versions.copy()
        for each in taken:
            self.add(each)
        try:
            yield
        finally:
            for each in taken:
                self.state.remove(each)
            self._pool_versions = versions
            self._nodes[here.node.name] = here

    def _classes_changed(self) -> None:
        self.by_resource = ClassesByResource(self.classes.values())
        self._wanted.clear()

    def _used(self, allocation: AllocationResult) -> None:
        for result in allocation.devices.results:
            pool = PoolId(result.driver, result.pool)
            self._pool_versions[pool] = self._pool_versions.get(pool, 0) + 1

    def _versions(self, pools: Sequence[Pool]) -> tuple[int, ...]:
        return tuple(self._pool_versions.get(pool.id, 0) for pool in pools)

    def _wanted_by(self, claims: Sequence[ResourceClaim]) -> Wanted:
        key = tuple(encode_msgpack(claim.spec) for claim in claims)
        known = self._wanted.get(key)
        if known is None:
            requests: list[PreparedRequest] = []
            for claim in claims:
                for alternatives in prepare(claim, self.classes, len(requests)):
                    requests += alternatives.options
            attributes = [each.attribute for claim in claims for each in constraints_of(claim)]
            known = self._wanted[key] = Wanted(next(self._numbers), requests, attributes)
        return known

    def _look_of(self, here: NodeDevices, wanted: Wanted) -> int:
        """A number for everything that a search for these claims reads of the node's devices but their use."""
        known = here.looks.get(wanted.number)
        if known is None:
            look = tuple(
                behaviour(device, here.node, wanted.requests, wanted.attributes, self.selectors) or device.id
                for device in here.devices
            )
            if len(here.looks) >= MAX_WANTED:
                here.looks.clear()
            known = here.looks[wanted.number] = self._shapes.obtain(look, lambda: next(self._numbers))
        return known

    def _usage_of(self, pools: Sequence[Pool]) -> int:
        """A number for everything that a search reads of the use of these pools."""
        names: dict[str, int] = {}
        usage = tuple(
            (pool.invalid, pool.incomplete, names.setdefault(pool.id.pool, len(names)), self._usage_of_pool(pool))
            for pool in pools
        )
        return self._shapes.obtain(usage, lambda: next(self._numbers))

    def _usage_of_pool(self, pool: Pool) -> Hashable:
        counters = tuple(sorted(remaining_counters(pool, self.state).items())) if pool.counters else ()
        return counters, tuple(self._usage_of_device(device) for device in pool.devices)

    def _usage_of_device(self, device: OfferedDevice) -> Hashable:
        if self.state.in_use(device.id):
            return True
        used = self.state.capacity(device.id)
        return False if used is None else tuple(sorted(used.items()))


def _allocations(here: NodeDevices, claims: Sequence[ResourceClaim], step: Step) -> list[AllocationResult]:
    if step.found is None:
        return []
    devices = [
        [Taken(taken.request, here.devices[index], taken.consumed) for taken, index in zip(of, indices, strict=True)]
        for of, indices in zip(step.found.devices, step.indices, strict=True)
    ]
    return allocations(here.node, claims, Solution(devices, step.found.chosen))


def _indices(found: Solution, devices: Sequence[OfferedDevice]) -> list[list[int]]:
    index_of = {device.id: index for index, device in enumerate(devices)}
    return [[index_of[taken.device.id] for taken in of] for of in found.devices]
