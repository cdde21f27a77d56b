"""flotilla gang: list pod groups, whose pods are placed together, and what each waits for."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tools.cli.arguments import add_nats_flags, add_output, named
from tools.cli.output import age, plain, table, terminal_width
from tools.cli.words import reasons

if TYPE_CHECKING:
    from shared.messages.inspection import DescribedComposite, DescribedGroup

MAX_FINISHED = 3
"""Names in a line."""
HEAD = ("GROUP", "STATE", "HERE", "PLACED", "WHAT")

DESCRIPTION = """\
Lists pod groups, of which a minimum of pods is placed together or none: how many pods are here, how many are placed,
and what the group waits for. With a name, also its pods. Exit code 1: no such group, or no reply from the queue.
"""
EXAMPLES = """\
states:
  absent        pods name it, and there is no such group, or it cannot be read
  incomplete    fewer pods count than its minimum; they are held. Pods that have finished do not count, nor do those
                of other schedulers
  held          enough pods exist, and some of them are gated
  active, backoff, error-backoff, unschedulable
                complete, and one entry of the queue (see flotilla queue --help)
  scheduling    being scheduled
  placed        its minimum of pods is placed

A composite group stands above its groups, which HERE and PLACED count: those of which enough pods exist, or are placed.

examples:
  flotilla gang
  flotilla gang ml/train                  one group, with its pods; or a composite group, with its groups
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("group", nargs="?", metavar="[NAMESPACE/]GROUP", help="name of the pod group")
    command.add_argument("-n", "--namespace", metavar="NAMESPACE", help="namespace of the group, or only of this one")
    add_output(command, "table", "json")
    add_nats_flags(command)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_list(options))


async def _list(options: argparse.Namespace) -> int:
    from shared.bus.subjects import QUEUE_LIST
    from shared.errors import ClusterError
    from shared.messages.inspection import DescribedGroup, GroupsListed, ListGroups
    from tools.cli.service_client import connected

    wanted = None if options.group is None else named(options.group, options.namespace, "GROUP")
    namespace, name = (options.namespace or "", "") if wanted is None else wanted
    found: list[DescribedGroup] = []
    now = 0.0
    async with connected(options) as client:
        request = ListGroups(namespace=namespace, name=name)
        async for page in client.pages("queue", QUEUE_LIST, request, GroupsListed):
            found, now = [*found, *page.groups], page.now
    if options.output == "json":
        print(json.dumps([plain(group) for group in found], indent=2, ensure_ascii=False))
    elif wanted is not None and not found:
        raise ClusterError(f"no pod group {wanted}: no pod names it, and the API server shows none")
    elif wanted is not None and any(group.name == name for group in found):
        for group in found:
            if group.name == name:
                print("\n".join(details(group, now)))
    elif found:
        print("\n".join(table([HEAD, *rows(found, now)], terminal_width(sys.stdout))))
    else:
        print("no pod groups")
    return 0


def rows(groups: "Sequence[DescribedGroup]", now: float) -> Iterator[tuple[str, ...]]:
    """Trees with their composite groups, each above what is in it, where the first of their pod groups would stand."""
    trees: dict[tuple[str, ...], list[DescribedGroup]] = {}
    for group in groups:
        root = (group.above[0].name,) if group.above else (group.api, group.name)
        trees.setdefault((group.namespace, *root), []).append(group)
    for tree in trees.values():
        shown: set[tuple[str, ...]] = set()
        for group in sorted(tree, key=lambda each: [above.name for above in each.above]):
            path = tuple(each.name for each in group.above)
            for depth, each in enumerate(group.above):
                if path[: depth + 1] not in shown:
                    shown.add(path[: depth + 1])
                    yield composite_row(each, _indented(group.namespace, each.name, depth))
            yield row(group, now)


def composite_row(group: "DescribedComposite", name: str) -> tuple[str, ...]:
    number = f"{group.groups} group{'' if group.groups == 1 else 's'}"
    is_incomplete = group.complete < group.minimum
    state = "placed" if group.placed >= group.minimum else "incomplete" if is_incomplete else group.queue or "held"
    return name, state, f"{group.complete} of {group.minimum}", str(group.placed), number


def row(group: "DescribedGroup", now: float) -> tuple[str, ...]:
    placed = str(group.counts.get("placed", 0))
    name = _indented(group.namespace, group.name, len(group.above))
    return name, state(group), _here(group), placed, "; ".join(what(group, now)) or "-"


def _indented(namespace: str, name: str, depth: int) -> str:
    return f"{'  ' * depth}{name}" if depth else f"{namespace}/{name}"


def state(group: "DescribedGroup") -> str:
    counts = group.counts
    if not group.exists:
        return "absent"
    if counts.get("placed", 0) >= group.minimum:
        return "placed"
    if _total(group) < group.minimum:
        return "incomplete"
    if counts.get("in flight"):
        return "scheduling"
    return "held" if counts.get("held") else group.queue or "pending"


def what(group: "DescribedGroup", now: float) -> Iterator[str]:
    """`2 of 3 here`, `waiting 40 s`, `worker-2 not created`."""
    if group.exists and _total(group) > group.minimum > 0:
        yield f"{_total(group)} here, {group.minimum} needed"
    elif group.exists:
        yield f"{_here(group)} here"
    elif group.unreadable:
        yield f"it cannot be read: {group.unreadable}"
    else:
        total = _total(group)
        yield f"{total} pod{' names' if total == 1 else 's name'} it, and it does not exist"
    if group.held_since is not None:
        yield f"waiting {age(now - group.held_since)}"
    yield from _not_counted(group)
    absent = group.minimum - _total(group) - len(group.finished) - sum(group.foreign.values())
    if group.exists and absent > 0:
        more = f" and {absent - len(group.missing)} more" if absent > len(group.missing) else ""
        yield f"{', '.join(group.missing)}{more} not created" if group.missing else f"{absent} not created"
    elif gated := group.counts.get("blocked"):
        yield f"{gated} gated"
    elif group.exists and group.held_since is not None and _total(group) >= group.minimum and group.why:
        yield group.why
    if group.held_since is None and group.why and state(group) in (group.queue, "pending"):
        yield f"tried {group.attempts}x: {', '.join(map(str, reasons(group.why)))}"
    if state(group) in (group.queue, "pending", "scheduling"):
        if group.nominated:
            yield f"{group.nominated} nominated, until their victims are gone"
        elif group.never_preempts and group.attempts:
            yield "may not preempt"
    if group.backoff_until is not None:
        yield f"backs off for {age(max(0.0, group.backoff_until - now))}"


def _not_counted(group: "DescribedGroup") -> Iterator[str]:
    """Pods that name the group, and why each does not count."""
    for scheduler, pods in group.foreign.items():
        some = "1 pod names" if pods == 1 else f"{pods} pods name"
        yield f"{some} the scheduler {scheduler}, which no profile here has"
    if group.finished and _total(group) < group.minimum:
        number = len(group.finished)
        more = f" and {number - MAX_FINISHED} more" if number > MAX_FINISHED else ""
        yield f"{', '.join(group.finished[:MAX_FINISHED])}{more} {'has' if number == 1 else 'have'} finished"


def details(group: "DescribedGroup", now: float) -> Iterator[str]:
    yield f"Group:   {group.namespace}/{group.name} ({group.api})"
    yield f"State:   {state(group)}: {'; '.join(what(group, now))}"
    if group.above:
        yield f"In:      {' in '.join(each.name for each in reversed(group.above))}"
    if group.why:
        yield f"Why:     {group.why}"
    counts = ", ".join(f"{count} {name}" for name, count in group.counts.items())
    yield f"Pods:    {counts or 'none'}"
    for member in group.members:
        yield f"  {member.name:<30}{member.state:<12}{member.why}".rstrip()
    if (more := _total(group) - len(group.members)) > 0:
        yield f"  and {more:,} more"


def _here(group: "DescribedGroup") -> str:
    return f"{_total(group)} of {group.minimum}" if group.minimum else str(_total(group))


def _total(group: "DescribedGroup") -> int:
    return sum(group.counts.values())
