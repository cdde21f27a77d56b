"""Why members of a group must wait for others, as their gate says it."""

from collections.abc import Mapping

from flotilla.results import SUCCESS, Status, unresolvable
from services.queue.scheduling.gang_plugins import PLUGIN_OF_API
from services.queue.scheduling.group_info import GroupInfo
from shared.model.objects import GroupApi, GroupRef

NOT_YET = "waiting for pods from a gang that cannot be scheduled yet"
VICTIMS = "waiting for the victims of pods from a gang to be evicted"
_MINIMUM: Mapping[GroupApi, str] = {GroupApi.SCHEDULING: "minCount", GroupApi.COSCHEDULING: "minMember"}


def rejected(ref: GroupRef, why: str) -> Status:
    return unresolvable(why).by(PLUGIN_OF_API[ref.api])


def no_group(ref: GroupRef) -> Status:
    return rejected(ref, f'waiting for pods\'s pod group "{ref.name}" to appear in scheduling queue')


def why_not_yet(group: GroupInfo) -> Status:
    """Whether the composite groups above it exist and may be placed."""
    if group.problem:
        return rejected(group.ref, group.problem)
    short = next((each for each in group.above if not each.shown.complete), None)
    if short is not None:
        return rejected(group.ref, f"waiting for minGroupCount groups of composite pod group {short.name} to have pods")
    if (other := group.waits_for) is not None:
        return rejected(group.ref, f"waiting for minGroupCount groups of composite pod group {other.name} to be placed")
    return SUCCESS


def too_few(ref: GroupRef) -> Status:
    return rejected(ref, f"waiting for {_MINIMUM[ref.api]} pods from a gang to appear in scheduling queue")
