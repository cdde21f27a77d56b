"""How what PostFilter plugins say is told by several shards, and makes one answer."""

from collections.abc import Sequence

from flotilla.results import Code, PostFilterResult, Status


def is_final(status: Status) -> bool:
    """After this no further plugin is asked: it helped, it failed, or nothing helps."""
    return status.ok or status.code in (Code.ERROR, Code.UNRESOLVABLE)


def of_all_shards(results: Sequence[PostFilterResult]) -> PostFilterResult:
    """What one plugin said, asked in several shards: a final answer holds for all, and what they agree on is told once.

    Of several nodes that it found, the first by name.
    """
    for code in (Code.ERROR, Code.UNRESOLVABLE):
        for result in results:
            if result.status.code is code:
                return result
    helped = [result for result in results if result.status.ok]
    if helped:
        return min(helped, key=lambda result: result.nominated_node)
    reasons = dict.fromkeys(reason for result in results for reason in result.status.reasons)
    return PostFilterResult(Status(Code.UNSCHEDULABLE, tuple(reasons)))
