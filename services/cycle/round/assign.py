"""Assigns a round's pods: in queue order, each takes the best placement that is left."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flotilla.results import Status, error
from services.cycle.round.admission import PodInfo
from services.cycle.round.domain_merge import DomainMerge, Followers, Trackers
from services.cycle.round.ladder_merge import LadderMerge, NoPlacement, Placement, WriteSet
from services.cycle.round.placement_search import Offered
from services.cycle.round.scopes import Counted
from services.cycle.round.views import ClassView
from services.cycle.round.volumes import RoundVolumes
from shared.cluster.devices import DeviceDecision, decision_of
from shared.framework.profile import plugin_failed
from shared.framework.signatures import PluginFailed
from shared.messages.limits import MAX_PLACEMENT_BYTES
from shared.model.codec import encode_msgpack


@dataclass(frozen=True, slots=True)
class GangShort:
    """Why a gang as a whole was not placed: `fits` members found room, `needs` must, `kept_out` found none.

    `why`: one sentence, if there is more to say.
    """

    fits: int
    needs: int
    kept_out: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Unfit:
    """No node is feasible for a class: the message for its owners, and the plugins that rejected it.

    `nodes`: the number of nodes in the cluster. `summaries`: the merged summaries of that verdict. `potential`: how
    many nodes were rejected with a status that evictions may change. `refused`: feasible nodes that extenders rejected,
    if they were asked. `in_vain`: what PostFilter plugins say of a nominated pod, if that is known without a search.
    """

    message: str
    plugins: tuple[str, ...]
    nodes: int = 0
    summaries: dict[str, object] = field(default_factory=dict)
    potential: int = 0
    refused: dict[str, Status] | None = None
    in_vain: str = ""
    kept_out_by: tuple[str, ...] = field(default=(), compare=False)
    """Of a gang: the members that fit nowhere."""
    gang: GangShort | None = field(default=None, compare=False)

    def also(self, message: str) -> "Unfit":
        if not message:
            return self
        stop = "" if self.message.endswith(".") else "."
        return replace(self, message=f"{self.message}{stop} {message}")


@dataclass(slots=True)
class RoundResult:
    """Every pod of the round is in exactly one of these lists; `order` has the uids of all, in queue order.

    `withheld`: unfit members of a gang of which enough are decided. Their verdict holds only if those are committed.
    `views`: by class, what is remembered of its pods. `broken`: classes with a tracker that raised.
    `by_name`: deferred classes whose pods must be judged by the names of their volume claims. Of a gang's step,
    `is_followed`: members matter to each other beyond the nodes that they fill; `counted`, `offered`: what it asked for
    instead of placements; `values`: of the labels of nodes that members are on.
    """

    order: list[str]
    decided: list[tuple[PodInfo, Placement]] = field(default_factory=list)
    unfit: list[tuple[PodInfo, Unfit]] = field(default_factory=list)
    failed: list[tuple[PodInfo, Status]] = field(default_factory=list)
    deferred: list[PodInfo] = field(default_factory=list)
    withheld: list[tuple[PodInfo, Unfit]] = field(default_factory=list)
    views: dict[str, ClassView] = field(default_factory=dict, compare=False)
    broken: dict[str, PluginFailed] = field(default_factory=dict, compare=False)
    by_name: frozenset[str] = frozenset()
    is_followed: bool = False
    counted: Counted | None = None
    offered: dict[str, Offered] | None = None
    values: dict[str, tuple[str | None, ...]] = field(default_factory=dict)

    def append(self, following: "RoundResult") -> None:
        """Pods that were all decided after these. A class is remembered as it was before the first of its pods."""
        self.order += following.order
        self.decided += following.decided
        for class_id, view in following.views.items():
            self.views.setdefault(class_id, view)


ClassVerdict = LadderMerge | DomainMerge | Unfit | Status | None
"""Where the pods of a class can go, why they can go nowhere, a plugin's failure, or None: it must be asked again."""


class Reservations:
    """Claims, volumes and devices that members of a gang are given while it is decided.

    The snapshot commits a gang as a whole. So no two of its decisions may name the same claim or volume, unless the
    later one was judged with the earlier one in place and agrees with it. One that shares a resource claim is judged
    again once the claim has devices.
    """

    def __init__(self, before: Iterable[tuple[PodInfo, Placement]]) -> None:
        """`before`: placements of earlier steps, which were in place when the present step was judged."""
        self._known = {key: value for info, placement in before for key, value in _reserved(info, placement)}
        self._new: set[tuple[str, str]] = set()
        self._over: set[str] = set()

    def allow(self, info: PodInfo, placement: Placement) -> bool:
        """Reserves what the placement takes. If it conflicts, no further placement of the class is allowed either."""
        class_id = info.class_id
        if class_id in self._over:
            return False
        new = {key for key, value in _reserved(info, placement) if self._known.get(key) != value}
        if any(key in self._new or key in self._known for key in new):
            self._over.add(class_id)
            return False
        self._new |= new
        return True


def _reserved(info: PodInfo, placement: Placement) -> Iterator[tuple[tuple[str, str], str]]:
    if placement.devices is not None:
        own = [] if info.claims is None else info.claims.claims
        for ref, allocation in zip(own, placement.devices.allocations, strict=True):
            if allocation is not None:
                yield ("resource claim", ref.key), f"allocated for {info.uid}"
        special = placement.devices.special
        for allocation in (*placement.devices.allocations, None if special is None else special.allocation):
            for each in allocation.devices.results if allocation is not None else ():
                if each.share_id is None and not each.admin_access:
                    yield ("device", f"{each.driver}/{each.pool}/{each.device}"), f"taken by {id(placement)}"
    if placement.volumes is None:
        return
    for claim, volume in placement.volumes.bindings:
        yield ("claim", claim), volume
        yield ("volume", volume), claim
    for claim in placement.volumes.provisions:
        yield ("claim", claim), f"provisioned for {placement.node}"


def _mismatch(info: PodInfo, placement: Placement) -> Status | None:
    """How a worker's proposal contradicts what the queue says of the pod's claims."""
    claims = 0 if info.claims is None else len(info.claims.claims)
    proposed = 0 if placement.devices is None else len(placement.devices.allocations)
    if claims != proposed and placement.devices is not None:
        what = f"devices for {proposed} resource claims"
        return error(f"node {placement.node} was proposed with {what}, and the pod has {claims}")
    if info.volumes is not None and placement.volumes is not None:
        numbers = {str(number) for number in range(len(info.volumes.claims))}
        proposed_claims = {*(claim for claim, _ in placement.volumes.bindings), *placement.volumes.provisions}
        if not proposed_claims <= numbers:
            return error(f"node {placement.node} was proposed with volumes for other claims than the pod's")
    return None


def device_decision(info: PodInfo, placement: Placement) -> DeviceDecision | None:
    """What the placement, which its class shares, means for the pod's own claims."""
    if placement.devices is None:
        return None
    own = [] if info.claims is None else [(each.key, each.uid) for each in info.claims.claims]
    return decision_of(placement.devices, own, info.uid)


NOTHING_OFFERED = error("a node is feasible, but no worker offers one")
MAX_DECIDED_BYTES = 2 << 20
"""What the decisions of one round, or of a step of a gang, say about volumes and devices: a commit has whole pods
beside them, and deltas whole claims. A placement that says more is alone in its commit."""


class _DecidedBytes:
    """What is decided about volumes and devices, measured as it is sent."""

    def __init__(self) -> None:
        self.is_full = False
        self._size = 0

    def fits(self, size: int, *, is_first: bool) -> bool:
        """If a placement of this size does not, none does from then on."""
        self.is_full |= not is_first and self._size + size > MAX_DECIDED_BYTES
        return not self.is_full

    def add(self, size: int) -> None:
        self._size += size
        self.is_full |= self._size > MAX_DECIDED_BYTES


def bytes_of(placement: Placement) -> int:
    """What it says about volumes and devices."""
    if placement.volumes is None and placement.devices is None:
        return 0
    return len(encode_msgpack((placement.volumes, placement.devices)))


def _too_large(placement: Placement, size: int) -> Status | None:
    """Why the placement fits in no message."""
    if size <= MAX_PLACEMENT_BYTES:
        return None
    what = f"what is decided about its volumes and devices on node {placement.node} takes {size:,} bytes"
    return error(f"{what}, and at most {MAX_PLACEMENT_BYTES:,} are committed")


def assign(
    pods: Sequence[PodInfo],
    verdicts: Mapping[str, ClassVerdict],
    trackers: Mapping[str, Trackers] | None = None,
    reservations: Reservations | None = None,
    own: Mapping[str, ClassVerdict] | None = None,
) -> RoundResult:
    """Once a pod is deferred, no pod of lower priority is decided before it, as that might take its place.

    `trackers`: those of every class, if decisions of this round matter beyond the nodes that they fill. An unfit class
    is deferred if a decision has changed that, and so is every pod from the first one that does not fit in the commit.
    `reservations`: volumes of a gang, whose decisions must be consistent. `own`: by uid, the verdicts on nominated pods
    to which that on their class does not apply.
    """
    followers = Followers(trackers or {})
    result = RoundResult([info.uid for info in pods])
    written, volumes, decided_bytes = WriteSet(), RoundVolumes(), _DecidedBytes()
    deferred_priority: int | None = None
    refused: dict[str, Status] = {}
    for info in pods:
        class_id, priority = info.class_id, info.template.priority
        verdict, writer = verdicts[class_id], class_id
        if own is not None and info.uid in own:
            verdict, writer = own[info.uid], info.uid  # no other verdict knows of this placement
        found: Placement | NoPlacement = NoPlacement.STALE
        size = 0
        if class_id in followers.broken:
            verdict = plugin_failed(followers.broken[class_id])
        if isinstance(verdict, Unfit) and not followers.is_touched(class_id):
            result.unfit.append((info, verdict))
            continue
        if isinstance(verdict, Status):
            result.failed.append((info, verdict))
            continue
        may_go = not decided_bytes.is_full and (deferred_priority is None or priority >= deferred_priority)
        if isinstance(verdict, LadderMerge | DomainMerge) and may_go:
            try:
                found = verdict.take(written)
            except PluginFailed as cause:
                followers.give_up(class_id, cause)
                result.failed.append((info, plugin_failed(cause)))
                continue
            if isinstance(found, NoPlacement) and not written:
                # The next round would be the same.
                result.failed.append((info, refused.get(class_id, NOTHING_OFFERED)))
                continue
            if isinstance(found, Placement):
                size = bytes_of(found)
                if why_not := _mismatch(info, found) or _too_large(found, size):
                    refused[class_id] = why_not
                    result.failed.append((info, why_not))
                    continue
                if not decided_bytes.fits(size, is_first=not result.decided):
                    found = NoPlacement.STALE
            if isinstance(found, Placement):
                found = volumes.take(info, found) or NoPlacement.STALE
            if reservations is not None and isinstance(found, Placement) and not reservations.allow(info, found):
                found = NoPlacement.STALE
        if isinstance(found, NoPlacement):
            result.deferred.append(info)  # also if exhausted: the reasons must be counted again
            deferred_priority = priority if deferred_priority is None else max(deferred_priority, priority)
            continue
        written.add(writer, found.node)
        if found.place is not None:
            followers.placed(class_id, info.template.load, found.place)
        result.decided.append((info, found))
        decided_bytes.add(size)
    result.broken = followers.broken
    return result
