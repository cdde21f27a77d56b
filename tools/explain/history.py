"""Decisions in words, as they were made: where a pod was placed, why it failed, who had to go for whom."""

from collections.abc import Sequence

from shared.explain.words import count, listed
from shared.messages.explaining import EVICTED, NOMINATED, PLACED, PodExplained, Remembered
from tools.explain.explanation import Explanation
from tools.explain.words import won_by


def told(key: str, remembered: PodExplained, *, node: str, is_binding: bool) -> Explanation:
    """About a pod that is not pending. `node`: where it is, if anywhere."""
    journal = remembered.journal
    placed = next((each for each in journal if each.kind == PLACED and (not node or each.node == node)), None)
    evicted = next((each for each in journal if each.kind == EVICTED), None)
    best = () if placed is None else placed.best
    return Explanation(
        pod=key,
        sentence=_sentence(key, placed, evicted, remembered, node, is_binding=is_binding),
        state="placed" if node else "preempted" if evicted is not None else "unknown",
        binding=is_binding,
        now=remembered.now,
        uid=remembered.uid,
        nodes=0 if placed is None else placed.nodes,
        feasible=None if placed is None else placed.feasible,
        best=best,
        weights=remembered.weights,
        won_by=won_by(best),
        journal=journal,
        notes=tuple(_notes(evicted)),
    )


def _sentence(
    key: str,
    placed: Remembered | None,
    evicted: Remembered | None,
    remembered: PodExplained,
    node: str,
    *,
    is_binding: bool,
) -> str:
    since = f"the cycle remembers decisions since {ago(remembered.now - remembered.since)} ago"
    if not node:
        if evicted is not None:
            return f"{key} was preempted on node {evicted.node} by {evicted.preemptor}"
        if placed is not None:
            return f"{key} was placed on node {placed.node}, and is there no more: it has finished or was deleted"
        known = listed(list(remembered.profiles), 8)
        return (
            f"{key} is not pending and on no node: it does not exist, has finished, or cannot be read; "
            f"the profiles here are {known}, and {since}"
        )
    where = f"is being bound to node {node}" if is_binding else f"is on node {node}"
    if placed is None:
        return f"{key} {where}; it was decided before the cycle's present term, or long ago, or elsewhere: {since}"
    return f"{key} {where}: it was {_choice(placed)}"


def _choice(placed: Remembered) -> str:
    if placed.feasible == 1:
        return f"the only one of {count(placed.nodes, 'node')} on which it fitted"
    if not placed.feasible:
        return "the node that it was nominated to"
    others = [each for each in placed.best if each.node != placed.node]
    text = f"the best of {placed.feasible:,} that it fitted, of {count(placed.nodes, 'node')}"
    if not others:
        return f"{text}, with a score of {placed.score}"
    return f"{text}, with a score of {placed.score}; next best was {others[0].node} with {others[0].total}"


def _notes(evicted: Remembered | None) -> Sequence[str]:
    return [] if evicted is None else [reason(evicted)]


def reason(evicted: Remembered) -> str:
    """Why a pod was the victim."""
    others = listed(list(evicted.victims), 3)
    together = f"together with {others} " if others else ""
    nodes = count(max(1, evicted.candidates), "node")
    return (
        f"it had a lower priority than {evicted.preemptor} (priority {evicted.score}), which fitted nowhere; going "
        f"{together}from {evicted.node} made room, and was the least costly of {nodes} where evictions would have"
    )


def line(decision: Remembered, now: float) -> str:
    """One decision in a line."""
    when = f"{ago(now - decision.at)} ago"
    attempt = f"attempt {decision.attempt}, " if decision.attempt else ""
    where = f"{attempt}round {decision.round}, state {decision.seq}"
    if decision.kind == PLACED:
        gang = f" with its gang {decision.gang}" if decision.gang else ""
        fitted = f", {decision.feasible:,} of {decision.nodes:,} fitted" if decision.nodes else ""
        return f"{when}: placed on {decision.node}{gang}, score {decision.score}{fitted} ({where})"
    if decision.kind == NOMINATED:
        victims = f"; victims: {listed(list(decision.victims), 5)}" if decision.victims else ""
        return f"{when}: nominated to {decision.node}{victims} ({where})"
    if decision.kind == EVICTED:
        return f"{when}: preempted on {decision.node} by {decision.preemptor}"
    first = decision.kept_out_by[:1]
    others = max(decision.kept_out, len(decision.kept_out_by)) - len(first)
    names = listed([*first, *([count(others, "other")] if others else [])], 2)
    kept_out = f"; of its gang {decision.gang}, {names} fitted nowhere"
    return f"{when}: failed, {decision.message}{kept_out if decision.kept_out_by else ''} ({where})"


def ago(seconds: float) -> str:
    from tools.cli.output import age

    return age(seconds)
