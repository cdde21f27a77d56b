"""An explanation as text of at most a given width, without colour."""

import textwrap
from collections.abc import Iterator, Sequence

from shared.explain.advice import Help
from shared.explain.words import count
from shared.messages.explaining import ScoredNode
from tools.cli.output import age, table
from tools.cli.words import first_events
from tools.explain.explanation import Explanation
from tools.explain.history import line

WIDTH = 100
"""Columns that are always there."""
MAX_GROUPS = 12


def render(explanation: Explanation, width: int = WIDTH) -> str:
    return "\n".join(_lines(explanation, width))


def _lines(told: Explanation, width: int) -> Iterator[str]:
    yield from _wrapped(f"{told.sentence}.", width)
    if told.waiting is not None:
        yield from _wrapped(f"{_waiting(told)}.", width)
    for note in told.notes:
        yield from _wrapped(f"{note[:1].upper()}{note[1:]}.", width)
    if told.asked_nodes:
        yield ""
        for said in told.asked_nodes:
            yield from _wrapped(f"node {said.node}: {said.text}", width, "  ")
            if said.score is not None:
                yield from _scores([said.score], told, width)
    if told.help or told.pairs:
        yield ""
        yield "It would fit if"
        yield from _helps(told.help or told.pairs, width)
    elif told.feasible == 0 and told.state == "pending" and told.nodes:
        yield ""
        yield from _wrapped("No single change that was tried helps, and no pair of two.", width)
    if told.preemption and not any(each.kind == "preempt" for each in told.help):
        yield from _wrapped(f"Preemption: {told.preemption}.", width)
    if told.groups:
        yield ""
        yield "Nodes that reject it, by the first reason"
        for group in told.groups[:MAX_GROUPS]:
            examples = f" ({', '.join(group.examples)}{', ...' if group.nodes > len(group.examples) else ''})"
            text = f"{group.nodes:>6,}  {group.text}{examples}  [{group.plugin}]"
            yield from _wrapped(text, width, " " * 8)
        if len(told.groups) > MAX_GROUPS:
            yield f"        and {count(len(told.groups) - MAX_GROUPS, 'other group')}: -o json lists all"
    if told.best and not told.gang:
        yield ""
        yield "Best nodes" if told.state == "pending" else "Best nodes when it was decided"
        yield from _scores(told.best, told, width)
        if told.won_by:
            yield from _wrapped(f"{told.won_by}.", width, "  ")
    if told.journal:
        yield ""
        yield "Decisions, the last one first"
        for decision in told.journal:
            yield from _wrapped(line(decision, told.now), width, "  ")


def _waiting(told: Explanation) -> str:
    waiting = told.waiting
    if waiting is None:
        return ""
    parts = [f"It is {waiting.state}, pending for {age(told.now - waiting.since)}"]
    parts.append(f"tried {count(waiting.attempts, 'time')}" if waiting.attempts else "not tried yet")
    if waiting.waits_for:
        parts.append(f"waits for: {first_events(waiting.waits_for)}")
    return ", ".join(parts)


def _helps(found: Sequence[Help], width: int) -> Iterator[str]:
    for each in found:
        fits = (
            "" if each.kind in ("preempt", "preemption-policy", "priority") else f": fits {count(each.nodes, 'node')}"
        )
        apart = "" if each.certain else ", as far as the rest of it is concerned"
        yield from textwrap.wrap(
            f"{each.text}{fits}{apart}", width, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
        )


def _scores(scored: Sequence[ScoredNode], told: Explanation, width: int) -> Iterator[str]:
    """A table of weighted scores, with raw and normalized ones where they differ; or of totals only."""
    names = list(dict.fromkeys(name for node in scored for name in node.plugins))
    if not names:
        yield from (f"  {row}" for row in table([("NODE", "SCORE"), *((n.node, str(n.total)) for n in scored)]))
        return
    rows = [("PLUGIN (WEIGHT)", *(node.node for node in scored))]
    for name in names:
        weight = f" ({told.weights[name]})" if name in told.weights else ""
        rows.append((f"{name}{weight}", *(_score(node, name) for node in scored)))
    rows.append(("total", *(str(node.total) for node in scored)))
    shown = [f"  {row}" for row in table(rows)]
    if max(map(len, shown)) <= width or len(scored) == 1:
        yield from shown
        return
    half = len(scored) // 2
    yield from _scores(scored[: len(scored) - half], told, width)
    yield ""
    yield from _scores(scored[len(scored) - half :], told, width)


def _score(node: ScoredNode, name: str) -> str:
    score = node.plugins.get(name)
    if score is None:
        return "-"
    if score.raw == score.normalized:
        return str(score.weighted)
    return f"{score.weighted} (raw {score.raw})"


def _wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    first = indent if indent and not indent.strip() and len(indent) < 8 else ""
    yield from textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=indent, break_long_words=True, break_on_hyphens=False
    )
