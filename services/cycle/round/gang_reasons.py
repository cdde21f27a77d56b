"""Why members of a gang are not placed. What keeps one of them out keeps all out: if that changes, all are tried again.

A gang may have thousands of members, so what they have in common is made once and shared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from flotilla.results import Status, error
from services.cycle.extenders import is_judged
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import GangShort, RoundResult, Unfit
from shared.extenders.talk import PLUGIN as EXTENDER

MAX_NAMED = 16
"""Members that fit nowhere, at most, that a reason names."""


def unfit_members(
    of: Iterable[PodInfo],
    members: Sequence[PodInfo],
    own: Mapping[str, Unfit],
    *,
    plugins: Iterable[str],
    others: str,
    sentence: str,
    short: GangShort,
) -> list[tuple[PodInfo, Unfit]]:
    """The verdict on each pod `of` the gang with these members.

    `own`: by uid, why members fit nowhere. `plugins`: whose events requeue the gang. `others`: the message for members
    that would fit. `sentence`: about the whole gang; may be empty. `short`: the same as data.
    """
    names = tuple(sorted({*plugins}))
    kept_out_by = tuple(islice((info.key for info in members if info.uid in own), MAX_NAMED))
    shared = Unfit(others, names, kept_out_by=kept_out_by, gang=short).also(sentence)

    def of_member(info: PodInfo) -> Unfit:
        unfit = own.get(info.uid)
        if unfit is None:
            return shared
        return replace(unfit, plugins=names, kept_out_by=kept_out_by, gang=short).also(sentence)

    return [(info, of_member(info)) for info in of]


def with_possible_limits(result: RoundResult, registered: Iterable[str]) -> RoundResult:
    """A gang's result, if its reasons may lack plugins that keep members from nodes: all of the profile are named.

    `registered`: the profile's plugins that say which events help the pods that they reject.
    """
    every = {*registered, *((EXTENDER,) if any(is_judged(info.class_id) for info, _ in result.unfit) else ())}
    named: dict[tuple[str, ...], tuple[str, ...]] = {}
    unfit: list[tuple[PodInfo, Unfit]] = []
    for info, why in result.unfit:
        if why.plugins not in named:
            named[why.plugins] = tuple(sorted(every.union(why.plugins)))
        unfit.append((info, replace(why, plugins=named[why.plugins])))
    return replace(result, unfit=unfit)


def failed_members(members: Sequence[PodInfo], failed: Mapping[str, Status]) -> list[tuple[PodInfo, Status]]:
    """All members of a gang of which some have failed."""
    other = of_other_member(next(failed[info.uid] for info in members if info.uid in failed))
    return [(info, failed.get(info.uid, other)) for info in members]


def of_other_member(failure: Status) -> Status:
    """What the failure of one member means for the others."""
    return error(f"failed to schedule other pod from a pod group: {failure.message}").by(failure.plugin)
