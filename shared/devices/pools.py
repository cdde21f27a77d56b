"""The pools of devices that a node can use.

A pool is named by driver and name, and published in slices, of which those of the highest generation count. A pool is
incomplete while slices of this generation are missing, and invalid if it contradicts itself. Neither is allocated from,
and a request for all devices fails with an error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from shared.devices.offers import OfferedDevice, OfferedSlice, PoolId, amounts_of, offer
from shared.devices.state import DeviceState
from shared.model.affinity import NodeSelector
from shared.model.devices import ResourceSlice
from shared.model.selectors import node_selector_matches

Counters = dict[tuple[str, str], int]
"""Amounts by counter set and counter."""


class DeviceNode(msgspec.Struct, frozen=True):
    """What node selection reads of a node."""

    name: str
    labels: Mapping[str, str]

    def matches(self, node_name: str | None, all_nodes: bool, selector: NodeSelector | None) -> bool:
        if node_name:
            return node_name == self.name
        return all_nodes or (selector is not None and node_selector_matches(selector, self.labels, self.name))


class Pool(msgspec.Struct, frozen=True, eq=False):
    """`devices` may be allocated on the node; `elsewhere` are other devices that draw from the pool's counters."""

    id: PoolId
    incomplete: bool = False
    invalid: bool = False
    devices: tuple[OfferedDevice, ...] = ()
    elsewhere: tuple[OfferedDevice, ...] = ()
    counters: Mapping[str, Mapping[str, int]] = {}

    @property
    def usable(self) -> bool:
        return not self.incomplete and not self.invalid

    @property
    def waits_for_conditions(self) -> bool:
        return any(device.device.binding_conditions for device in self.devices)


class Slices:
    """All slices of the cluster, so that the pools of a node are found without looking at every slice.

    Changes are applied one by one. Slices of one pool are taken in the order of their names.

    A slice with counters counts on all nodes, also one that names a node. Where a node sees nothing else of a pool, it
    matters only if the pool is incomplete or invalid; such pools are kept in `_unusable`.
    """

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        self._slices: dict[str, OfferedSlice] = {}
        self._of_node: dict[str, dict[str, OfferedSlice]] = {}
        self._shared: dict[str, OfferedSlice] = {}
        self._of_pool: dict[PoolId, dict[str, OfferedSlice]] = {}
        self._unusable: dict[PoolId, Pool] = {}
        self.reaching: set[PoolId] = set()
        """Pools with devices for more than one node."""
        self.changes = 0
        """How often any slice has changed."""
        self._version = 0
        self._node_versions: dict[str, int] = {}
        for each in slices:
            self.put(each)

    def put(self, resource_slice: ResourceSlice) -> None:
        """Add a slice, or replace the one of its name."""
        self.remove(resource_slice.name)
        offered = offer(resource_slice)
        self._slices[offered.name] = offered
        self._of_pool.setdefault(offered.pool, {})[offered.name] = offered
        self._group(offered)[offered.name] = offered
        self._changed(offered)

    def remove(self, name: str) -> None:
        offered = self._slices.pop(name, None)
        if offered is not None:
            del self._of_pool[offered.pool][name]
            del self._group(offered)[name]
            self._changed(offered)
            if not self._of_pool[offered.pool]:
                del self._of_pool[offered.pool]

    def version(self, node: str) -> tuple[int, int]:
        """Changes with every change of a slice that matters to the node's pools."""
        return self._version, self._node_versions.get(node, 0)

    def reaching_devices(self) -> Iterator[OfferedDevice]:
        """The devices of pools that more than one node sees."""
        for pool in self.reaching:
            for offered in self._of_pool[pool].values():
                yield from offered.devices

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        """The nodes that see a slice of the pool; None if it may be any node."""
        nodes = {each.slice.spec.node_name for each in self._of_pool.get(pool, {}).values()}
        if pool in self._unusable or not all(nodes):
            return None
        return frozenset(node for node in nodes if node)

    def pools_for(self, node: DeviceNode) -> tuple[Pool, ...]:
        """The node's pools in the order of the search: by driver and name, those with binding conditions last."""
        own = _by_name(self._of_node.get(node.name, {}).values())
        own.sort(key=lambda each: bool(each.slice.spec.shared_counters))
        seen = [each for each in (*own, *_by_name(self._shared.values())) if _is_relevant(each, node)]
        pools = {each.pool for each in seen}
        counting = [each for pool in pools for each in self._of_pool[pool].values() if _counts_elsewhere(each, node)]
        found: dict[PoolId, list[OfferedSlice]] = {}
        for offered in (*seen, *_by_name(counting)):
            _add_newest(found, offered)
        known = [pool for slices in found.values() if (pool := self._pool(slices)) is not None]
        unseen = [pool for id_, pool in self._unusable.items() if id_ not in pools]
        return tuple(sorted((*known, *unseen), key=lambda pool: (pool.waits_for_conditions, pool.id)))

    def _group(self, offered: OfferedSlice) -> dict[str, OfferedSlice]:
        node = offered.slice.spec.node_name
        return self._of_node.setdefault(node, {}) if node else self._shared

    def _changed(self, offered: OfferedSlice) -> None:
        """Note for which nodes the slice's pool has changed."""
        self.changes += 1
        slices = self._of_pool[offered.pool].values()
        for each in (offered, *slices):
            node = each.slice.spec.node_name
            if node:
                self._node_versions[node] = self._node_versions.get(node, 0) + 1
            else:
                self._version += 1
        nodes = {each.slice.spec.node_name for each in slices}
        if len(nodes) > 1 or not all(nodes):
            self.reaching.add(offered.pool)
        else:
            self.reaching.discard(offered.pool)
        counting: dict[PoolId, list[OfferedSlice]] = {}
        for each in _by_name(slices):
            if each.slice.spec.shared_counters:
                _add_newest(counting, each)
        pool = self._pool(counting[offered.pool]) if counting else None
        before = self._unusable.pop(offered.pool, None)
        if pool is not None and not pool.usable:
            self._unusable[offered.pool] = pool
        else:
            pool = None
        if (before and (before.invalid, before.incomplete)) != (pool and (pool.invalid, pool.incomplete)):
            self._version += 1

    def _pool(self, slices: Sequence[OfferedSlice]) -> Pool | None:
        """The pool of these slices of one generation; None if there is a newer generation elsewhere."""
        first = slices[0].slice.spec.pool
        pool = slices[0].pool
        unseen: list[OfferedSlice] = []
        if len(slices) != first.resource_slice_count:
            everywhere = self._of_pool[pool].values()
            if any(each.slice.spec.pool.generation > first.generation for each in everywhere):
                return None
            current = [each for each in everywhere if each.slice.spec.pool.generation == first.generation]
            if len(current) != first.resource_slice_count:
                return Pool(pool, incomplete=True)
            seen = {each.name for each in slices}
            unseen = [each for each in current if each.name not in seen]
        return _build(pool, _by_name(slices), unseen)

    def for_score(self, node: DeviceNode) -> Iterator[OfferedDevice]:
        """The devices that NodeResourcesFit's score counts for a node: of all slices, whatever generation."""
        for offered in (*self._of_node.get(node.name, {}).values(), *self._shared.values()):
            spec = offered.slice.spec
            if spec.per_device_node_selection:
                for each in offered.devices:
                    if each.all_nodes or node.matches(each.node_name, False, each.node_selector):
                        yield each
            elif (
                spec.all_nodes
                or node.matches(spec.node_name, False, spec.node_selector)
                or (not spec.node_name and spec.node_selector is None)
            ):
                yield from offered.devices


def _by_name(slices: Iterable[OfferedSlice]) -> list[OfferedSlice]:
    return sorted(slices, key=lambda each: each.name)


def _is_relevant(offered: OfferedSlice, node: DeviceNode) -> bool:
    spec = offered.slice.spec
    if spec.shared_counters:
        return True
    if spec.per_device_node_selection and not (spec.node_name or spec.all_nodes or spec.node_selector is not None):
        devices = spec.devices
        return any(node.matches(each.node_name, each.all_nodes, each.node_selector) for each in devices)
    return node.matches(spec.node_name, spec.all_nodes, spec.node_selector)


def _counts_elsewhere(offered: OfferedSlice, node: DeviceNode) -> bool:
    """Whether the slice is for another node, but has counters."""
    spec = offered.slice.spec
    return bool(spec.shared_counters) and bool(spec.node_name) and spec.node_name != node.name


def _add_newest(found: dict[PoolId, list[OfferedSlice]], offered: OfferedSlice) -> None:
    known = found.get(offered.pool)
    generation = offered.slice.spec.pool.generation
    if known is None or generation > known[0].slice.spec.pool.generation:
        found[offered.pool] = [offered]
    elif generation == known[0].slice.spec.pool.generation:
        known.append(offered)


def _build(pool: PoolId, slices: Sequence[OfferedSlice], unseen: Sequence[OfferedSlice]) -> Pool:
    """The pool, checked. Device names are compared among the slices that the node sees."""
    devices = tuple(device for each in slices if not each.slice.spec.shared_counters for device in each.devices)
    elsewhere = tuple(device for each in unseen for device in each.devices)
    sets = [counter_set for each in slices for counter_set in each.slice.spec.shared_counters]
    counters = {counter_set.name: amounts_of(counter_set.counters) for counter_set in sets}
    has_duplicates = len({device.id for device in devices}) != len(devices) or len(counters) != len(sets)
    drawing = (*(device for each in slices for device in each.devices), *elsewhere)
    if has_duplicates or any(_draws_unknown(device, counters) for device in drawing):
        return Pool(pool, invalid=True)
    return Pool(pool, devices=devices, elsewhere=elsewhere, counters=counters)


def _draws_unknown(device: OfferedDevice, counters: Mapping[str, Mapping[str, int]]) -> bool:
    return any(
        draw.counter_set not in counters or not draw.amounts.keys() <= counters[draw.counter_set].keys()
        for draw in device.draws
    )


def remaining_counters(pool: Pool, state: DeviceState) -> Counters:
    """What allocated devices leave of the pool's counters; negative where they take more than there is."""
    remaining = {(name, counter): amount for name, found in pool.counters.items() for counter, amount in found.items()}
    for device in (*pool.devices, *pool.elsewhere):
        if device.draws and state.is_allocated(device.id):
            add_draws(remaining, device, -1)
    return remaining


def add_draws(counters: Counters, device: OfferedDevice, sign: int) -> None:
    for draw in device.draws:
        for name, amount in draw.amounts.items():
            counter = (draw.counter_set, name)
            counters[counter] = counters.get(counter, 0) + sign * amount
