"""Chooses the pods of the next round."""

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from services.cycle.extenders import is_judged, max_judged
from services.cycle.round.admission import PodInfo
from services.cycle.round.class_cache import ClassCache
from shared.messages.limits import HALF_A_MESSAGE

ENOUGH = 256
"""Pods that begin a round at once, without waiting for others, also while the round before it is committed."""
MIN_UNIFORM = 256
"""Consecutive pods of one class that share a round of any size."""
MAX_QUESTIONS = 256
"""Limit of a round. Each class is one question, and so is each pod that affects others by more than its requests, or
whose placement carries more than a node."""
MAX_OF_GANG = 1 << 13
"""Members of one gang that share a step: each further step repeats what was decided before."""
MAX_POD_BYTES = HALF_A_MESSAGE
"""Whole pods in one message, and what they mean for others: half of what a message may hold."""


class NextPods(NamedTuple):
    """`passed_over`: how many pods were left for the rounds that follow, as they cannot share this one. `is_cut`: the
    limit of questions left pods out.
    """

    pods: list[PodInfo]
    passed_over: int
    is_cut: bool


def next_pods(
    waiting: deque[PodInfo], round_size: int, cache: ClassCache, packing: Collection[str] = frozenset()
) -> NextPods:
    """Takes the next round's pods: up to the round size, and as many as fit in a commit and in the limit of questions.

    Consecutive pods of one class are decided together as they would be one by one, also in strict mode; unless one
    matters to the next by more than the resources it takes.

    `packing`: profiles in which a pod raises the score of its node. Classes of these have rounds of their own, because
    pods of a class see the nodes that its other pods fill, and no others. So pods of other classes are passed over, up
    to a round size; but none is overtaken by a pod of lower priority.
    """
    first = waiting.popleft()
    pods, passed_over = [first], list[PodInfo]()
    floor: int | None = None
    size = bytes_in_commit(first)
    uniform = cache.stands_alone(first.class_id) and first.volumes is None
    classes, questions = {first.class_id}, 1
    judged_pods = int(is_judged(first.class_id))
    is_sorted_out = bool(packing) and round_size > 1 and first.gang is None
    together = MIN_UNIFORM if first.gang is None else MAX_OF_GANG
    at_once = round_size if first.gang is None or round_size == 1 else MAX_OF_GANG
    while waiting and len(pods) < max(round_size, together):
        following = waiting[0]
        if following.gang is not None and first.gang is None:
            break
        if is_sorted_out and not _may_share(first, following, packing):
            if len(passed_over) == round_size:
                break
            passed_over.append(waiting.popleft())
            floor = following.template.priority if floor is None else max(floor, following.template.priority)
            continue
        if floor is not None and following.template.priority < floor:
            break
        size += following.size + _bytes_of_load(following, classes)
        uniform = uniform and following.class_id == first.class_id
        judged_pods += is_judged(following.class_id)
        if first.gang is None and not (following.class_id in classes and _is_plain(following, cache)):
            questions += 1
        classes.add(following.class_id)
        is_full = size > MAX_POD_BYTES or judged_pods > max_judged(cache.nodes) or questions > MAX_QUESTIONS
        if is_full or (len(pods) >= at_once and not uniform):
            break
        pods.append(waiting.popleft())
    waiting.extendleft(reversed(passed_over))
    return NextPods(pods, len(passed_over), questions > MAX_QUESTIONS)


def bytes_in_commit(info: PodInfo) -> int:
    """At most, of a whole pod where binders need it, and of what it means for others."""
    return info.size + _bytes_of_load(info, ())


def _bytes_of_load(info: PodInfo, classes: Collection[str]) -> int:
    """What a commit says, at most, of what the pod means for others: once for each of these classes, if it can."""
    is_said = info.class_id in classes and info.labels is None and info.volumes is None
    return 0 if is_said else len(info.body)


def _is_plain(info: PodInfo, cache: ClassCache) -> bool:
    """Whether a placement of the pod consists of a node only, and affects others only by its requests."""
    return cache.stands_alone(info.class_id) and info.template.is_plain


def _may_share(first: PodInfo, other: PodInfo, packing: Collection[str]) -> bool:
    """Whether a round that began with the first pod may decide the other one."""
    if first.template.profile in packing:
        return other.class_id == first.class_id
    return other.template.profile not in packing
