"""Describes pod groups for `flotilla gang`, in pages."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from services.queue.scheduling.composite_info import CompositeInfo
from services.queue.scheduling.group_info import GroupInfo, MemberState
from services.queue.scheduling.nominator import Nominator
from services.queue.scheduling.not_members import NOBODY, OfGroup
from services.queue.scheduling.pod_groups import PodGroups
from services.queue.scheduling.queued_gang import QueuedGang
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.bounded import Listings
from shared.messages.inspection import (
    LONGEST_TEXT,
    MAX_BODIES_BYTES,
    MAX_GROUPS,
    MAX_MEMBERS,
    MAX_PLACED,
    DescribedComposite,
    DescribedGroup,
    GroupMember,
    GroupsListed,
    ListGroups,
)
from shared.model.objects import GroupRef, encode_msgpack

MAX_FINISHED = 64
"""Names of pods that have finished."""
MAX_SCHEDULERS = 4
"""Other schedulers that pods of one group name."""
MAX_MISSING = 8
"""Names of missing pods."""
_BACKING_OFF = (PodState.BACKOFF, PodState.ERROR_BACKOFF)
_NUMBERED = re.compile(r"(.+?-)(\d{1,9})(?:-[a-z0-9]{5})?")
"""Names of pods of a StatefulSet, and of an Indexed Job, which has a random end."""


class GroupListing:
    def __init__(self, groups: PodGroups, nominator: Nominator, date: Callable[[float], float] = float) -> None:
        """`date` converts the queue's times to Unix times."""
        self._groups = groups
        self._nominator = nominator
        self._date = date
        self._listings: Listings[GroupRef] = Listings()

    def answer(self, request: ListGroups, now: float) -> GroupsListed:
        limit = min(request.limit, MAX_GROUPS)
        page = self._listings.page(request.listing, request.after, limit, lambda: self._list(request), now)
        if page is None:
            return GroupsListed("", self._date(now), 0, [])
        known = {group.ref: group for group in self._groups.groups()}
        if request.bodies:
            page = page.within(MAX_BODIES_BYTES, lambda ref: _size(known.get(ref)))
        others = self._groups.others.by_group()
        groups = [
            self._describe(known[ref], others.get(ref, NOBODY), in_full=bool(request.name), with_body=request.bodies)
            for ref in page.items
            if ref in known
        ]
        return GroupsListed(page.listing, self._date(now), page.total, groups, page.next)

    def expire(self, now: float) -> None:
        self._listings.expire(now)

    def _list(self, request: ListGroups) -> Sequence[GroupRef]:
        return sorted(group.ref for group in self._groups.groups() if _is_wanted(group, request))

    def _describe(self, group: GroupInfo, others: OfGroup, *, in_full: bool, with_body: bool) -> DescribedGroup:
        held = self._groups.held(group)
        tried = [info for info in group.pods.values() if info.failed_at is not None]
        latest = max(tried, key=lambda info: info.failed_at or 0.0, default=None)
        why = ""
        if held is not None:
            why = group.shortage
        elif latest is not None and latest.state is not PodState.BINDING:
            why = latest.last_failure
        namespace, name = _parts(group.ref)
        names = {*_names(group)}
        finished = sorted({*others.finished} - names)
        names |= {*finished, *others.foreign}
        return DescribedGroup(
            group.ref.api.partition("/")[0],
            namespace,
            name,
            group.object is not None,
            group.minimum,
            {state.value: count for state, count in group.counts.items() if count},
            None if held is None else self._date(held.since),
            group.attempts,
            why[:LONGEST_TEXT],
            missing_names(names, group.minimum),
            tuple(islice(self._members(group), MAX_MEMBERS)) if in_full else (),
            encode_msgpack(group.object) if with_body and group.object is not None else b"",
            dict(islice(_placed(group), MAX_PLACED)) if with_body else {},
            _state_of(group.entry),
            self._date(group.entry.backoff_until + 1.0) if group.entry.state in _BACKING_OFF else None,
            sum(bool(self._nominated(info)) for info in group.pods.values()),
            group.evicts_nobody,
            tuple(_composite(each, with_body=with_body) for each in group.above),
            tuple(finished[:MAX_FINISHED]),
            dict(Counter(others.foreign.values()).most_common(MAX_SCHEDULERS)),
            group.unreadable[:LONGEST_TEXT],
        )

    def _nominated(self, info: QueuedPodInfo) -> str:
        """The node that is reserved for the pod, if it has none yet."""
        return "" if info.state is PodState.BINDING else self._nominator.applied(info.pod).status.nominated_node_name

    def _members(self, group: GroupInfo) -> Iterator[GroupMember]:
        for info in sorted(group.pods.values(), key=lambda info: info.pod.name):
            node = self._nominated(info)
            why = f"nominated to {node}" if node else self._groups.shortage(info) or _why(info)
            yield GroupMember(info.pod.name, self._groups.state_of(info.uid).value, why[:LONGEST_TEXT])
        for name in sorted(member.name for member in group.on_nodes.values()):
            yield GroupMember(name, MemberState.PLACED.value, "on a node")


def _is_wanted(group: GroupInfo, request: ListGroups) -> bool:
    namespace, name = _parts(group.ref)
    names = {"", name, *(each.name for each in group.above)}
    return request.namespace in ("", namespace) and request.name in names


def _composite(group: CompositeInfo, *, with_body: bool) -> DescribedComposite:
    return DescribedComposite(
        group.name,
        group.least,
        group.groups,
        group.complete,
        group.placed,
        _state_of(group.gang),
        encode_msgpack(group.object) if with_body else b"",
    )


def _state_of(gang: QueuedGang) -> str:
    return "" if gang.state is None else gang.state.value


def _placed(group: GroupInfo) -> Iterator[tuple[str, str]]:
    yield from ((uid, member.name) for uid, member in group.on_nodes.items())
    yield from ((uid, info.pod.name) for uid, info in group.pods.items() if info.state is PodState.BINDING)


def _size(group: GroupInfo | None) -> int:
    """Bytes of a group in a listing with bodies, about."""
    if group is None:
        return 0
    body = sum(0 if each is None else len(encode_msgpack(each)) for each in (group.object, *_objects_above(group)))
    return body + sum(len(uid) + len(name) for uid, name in islice(_placed(group), MAX_PLACED))


def _objects_above(group: GroupInfo) -> Iterator[object]:
    return (each.object for each in group.above)


def missing_names(names: Iterable[str], minimum: int) -> tuple[str, ...]:
    """Of pods that are numbered from 0, as those of an Indexed Job or a StatefulSet: which of the minimum do not exist,
    without the random end of their names.

    Nothing if the names say nothing about others.
    """
    found = [_NUMBERED.fullmatch(name) for name in names]
    numbered = [match for match in found if match is not None]
    if not numbered or len(numbered) < len(found) or len({match[1] for match in numbered}) > 1:
        return ()
    there = {int(match[2]) for match in numbered}
    if len(there) >= minimum or max(there) >= minimum:
        return ()
    absent = (number for number in range(minimum) if number not in there)
    return tuple(f"{numbered[0][1]}{number}" for number in islice(absent, MAX_MISSING))


def _names(group: GroupInfo) -> list[str]:
    return [*(info.pod.name for info in group.pods.values()), *(member.name for member in group.on_nodes.values())]


def _parts(ref: GroupRef) -> tuple[str, str]:
    namespace, _, name = ref.key.partition("/")
    return namespace, name


def _why(info: QueuedPodInfo) -> str:
    if info.state is PodState.GATED:
        return f"gate {info.gating_plugin}: {info.gate_reason}" if info.gate_reason else f"gate {info.gating_plugin}"
    return "" if info.state in (PodState.IN_FLIGHT, PodState.BINDING) else info.last_failure
