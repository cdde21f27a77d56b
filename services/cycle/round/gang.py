"""Gangs: pods that are placed together or not at all, decided in one round that is asked in steps.

    open --assigned in a step--> decided | unfit | failed
      ^          |
      +-deferred-+

Each step asks about the open members, with those decided so far as given, and assigns them like any round. When no
member is open, the decided ones are committed together if they are enough. A gang that does not fit leaves the cycle,
and holds no resources meanwhile.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import msgspec

from flotilla.results import Status, error
from services.cycle.round.admission import PodInfo, needed
from services.cycle.round.assign import Reservations, RoundResult, Unfit, device_decision
from services.cycle.round.ladder_merge import Placement
from services.cycle.round.views import ClassView
from shared.cluster.volumes import VolumeDecision
from shared.messages.rounds import Given
from shared.messages.state import Loads
from shared.model.load import PodLoad

PLUGIN = "GangScheduling"
"""Rejects the members of a gang that does not fit, beside the plugins that reject some of them."""
MAX_MEMBERS = 1024
"""Pods decided together: one ask has all of them as given, and one commit decides them."""
MAX_IDLE_STEPS = 8
"""Consecutive steps without a verdict on any member."""
WAITING = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled"

T = TypeVar("T")


def take_gang(backlog: deque[PodInfo]) -> "GangRound | None":
    """Takes the gang at the head of the backlog, if there is one: all consecutive members."""
    if not backlog or backlog[0].gang is None:
        return None
    key = backlog[0].gang.key
    members: list[PodInfo] = []
    while backlog and backlog[0].gang is not None and backlog[0].gang.key == key:
        members.append(backlog.popleft())
    return GangRound(members)


class GangRound:
    """`members` are in queue order; `open`: the undecided ones, in the order of decision. `least` must be placed."""

    def __init__(self, members: Sequence[PodInfo]) -> None:
        gangs = [info.gang for info in members if info.gang is not None]
        self.key = gangs[0].key
        self.least = max(gang.least for gang in gangs)
        self.members = list(members)
        self.open = deque(members)
        self._decided: dict[str, tuple[PodInfo, Placement]] = {}
        self._unfit: dict[str, tuple[PodInfo, Unfit]] = {}
        self._failed: dict[str, tuple[PodInfo, Status]] = {}
        self._views: dict[str, ClassView] = {}
        self._idle_steps = 0
        self.steps = 0
        """Steps that it has taken."""

    def refused(self, max_bytes: int) -> RoundResult | None:
        """All members as failed, if the gang cannot be decided at all. `max_bytes`: of whole pods in one commit."""
        why = self._refusal(max_bytes)
        return None if why is None else RoundResult(self._order, failed=[(info, why) for info in self.members])

    def _refusal(self, max_bytes: int) -> Status | None:
        size = sum(info.size for info in self.members)
        if len(self.members) > MAX_MEMBERS:
            return error(f"{self._name}: at most {MAX_MEMBERS} pods are placed together, not {len(self.members)}")
        if size > max_bytes:
            return error(f"{self._name}: its pods take {size} bytes, and at most {max_bytes} are committed")
        profiles = list(dict.fromkeys(info.template.profile for info in self.members))
        if len(profiles) > 1:
            names = f'got: "{profiles[0]}" and "{profiles[1]}"'
            return error(f"all pods in a single pod group should have the same .spec.schedulerName set, {names}")
        return None

    # Steps

    def given(self) -> tuple[list[Given], list[PodLoad]]:
        """The decided members, which workers assume on their nodes while they judge the next step."""
        loads = Loads()
        return [
            Given(
                info.uid,
                placement.node,
                loads.number(info.template.load),
                placement.volumes,
                device_decision(info, placement),
                info.name if placement.devices is not None else "",
            )
            for info, placement in self._decided.values()
        ], loads.items

    def reservations(self) -> Reservations:
        return Reservations(self._decided.values())

    def take(self, result: RoundResult) -> None:
        """The result of a step, whose pods were taken from `open`; deferred ones are put back."""
        self.steps += 1
        self._decided |= {info.uid: (info, placement) for info, placement in result.decided}
        self._unfit |= {info.uid: (info, unfit) for info, unfit in result.unfit}
        self._failed |= {info.uid: (info, status) for info, status in result.failed}
        self._views |= result.views
        self.open.extendleft(reversed(result.deferred))
        self._idle_steps = self._idle_steps + 1 if len(result.deferred) == len(result.order) else 0
        if self._idle_steps == MAX_IDLE_STEPS:
            stuck = error(f"{self._name}: no member was decided in {MAX_IDLE_STEPS} steps")
            self._failed |= {info.uid: (info, stuck) for info in result.deferred}

    @property
    def is_over(self) -> bool:
        """One failed member is enough."""
        return bool(self._failed) or not self.open

    # The end

    @property
    def verdict(self) -> Literal["placed", "unfit", "failed"]:
        """Of the gang as a whole, once it is over."""
        if self._failed:
            return "failed"
        return "placed" if len(self._decided) >= self.least else "unfit"

    def outcome(self) -> RoundResult:
        whole = RoundResult(self._order, views=self._views)
        verdict = self.verdict
        if verdict == "failed":
            whole.failed = [(info, self._failure_of(info)) for info in self.members]
        elif verdict == "placed":
            whole.decided = self._with_shared_volumes()
            whole.withheld = self._in_order(self._unfit)
        else:
            whole.unfit = [(info, self._unfit_of(info)) for info in self.members]
        return whole

    @property
    def _order(self) -> list[str]:
        return [info.uid for info in self.members]

    @property
    def _name(self) -> str:
        return f'pod group "{self.key}"'

    def _in_order(self, found: Mapping[str, T]) -> list[T]:
        return [found[info.uid] for info in self.members if info.uid in found]

    def _with_shared_volumes(self) -> list[tuple[PodInfo, Placement]]:
        """In the order of decision. Members that share a claim all wait for the volume that one of them was given.

        When they were judged, the claim was assumed to have it already.
        """
        given = {
            claim: volume
            for _, placement in self._decided.values()
            if placement.volumes is not None
            for claim, volume in placement.volumes.bindings
        }
        return [(info, _with_bindings(info, placement, given)) for info, placement in self._decided.values()]

    def _failure_of(self, info: PodInfo) -> Status:
        if info.uid in self._failed:
            return self._failed[info.uid][1]
        _, first = self._in_order(self._failed)[0]
        return error(f"failed to schedule other pod from a pod group: {first.message}").by(first.plugin)

    def _unfit_of(self, info: PodInfo) -> Unfit:
        """What rejects one member rejects all: when that changes, all must be tried again."""
        unfit = [why for _, why in self._in_order(self._unfit)]
        plugins = tuple(sorted({PLUGIN, *(plugin for why in unfit for plugin in why.plugins)}))
        if info.uid in self._unfit:
            return replace(self._unfit[info.uid][1], plugins=plugins, kept_out_by=self._kept_out_by)
        reason = f": {unfit[0].message}" if unfit else ""
        found = f"only {len(self._decided)} of the {self.least} members of {self._name} that are needed fit"
        return Unfit(f"{WAITING}: {found}{reason}", plugins, kept_out_by=self._kept_out_by)

    @property
    def _kept_out_by(self) -> tuple[str, ...]:
        return tuple(info.key for info in self.members if info.uid in self._unfit)


def _with_bindings(info: PodInfo, placement: Placement, given: Mapping[str, str]) -> Placement:
    load, volumes = info.template.load, placement.volumes or VolumeDecision()
    bound = {claim for claim, _ in volumes.bindings}
    claims = [claim for name in load.claims if (claim := f"{load.namespace}/{name}") in given and claim not in bound]
    if not claims:
        return placement
    bindings = [*volumes.bindings, *((claim, given[claim]) for claim in claims)]
    return replace(placement, volumes=msgspec.structs.replace(volumes, bindings=bindings))


def undecided(result: RoundResult, lost: Mapping[str, PodInfo]) -> dict[str, PodInfo]:
    """The pods to decide again after `lost` lost a conflict: with withheld members of their gang, if there are any.

    The gang needs fewer members then, as the others are placed.
    """
    again = dict(lost) | {info.uid: info for info, _ in result.withheld}
    placed = len(result.decided) - len(lost)
    return {uid: _needing_fewer(info, placed) for uid, info in again.items()} if placed else again


def _needing_fewer(info: PodInfo, placed: int) -> PodInfo:
    if info.gang is None:
        return info
    return replace(info, gang=needed(msgspec.structs.replace(info.gang, least=info.gang.least - placed)))
