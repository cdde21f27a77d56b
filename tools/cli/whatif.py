"""flotilla whatif: where pods would go, who would be preempted, and which nodes would help. Nothing is changed."""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.cli.arguments import add_nats_flags, add_numbers, add_output, read_input
from tools.cli.output import plain, table

if TYPE_CHECKING:
    from tools.live_state import LiveState
    from tools.whatif.answer import Answer, PodAnswer, Question
    from tools.whatif.engine import PodsOn

TIMEOUT = 120
"""Seconds for an answer."""
MAX_ROWS = 50
MAX_EXAMPLES = 3

DESCRIPTION = """\
Decides as the scheduler would, on the state of a running pipeline or a dump, and changes nothing.
Without -f: what becomes of the pods that are pending now. Exit code 1: some pod would not be
scheduled, or a service does not reply.
"""
EXAMPLES = """\
Files hold Kubernetes objects as YAML or JSON: Pods, Deployments, ReplicaSets, StatefulSets, Jobs, Nodes, and
what their pods need, such as PersistentVolumeClaims. Pods of removed and drained nodes are decided again as
their owners would recreate them; those of DaemonSets belong to their node.

examples:
  flotilla whatif                                         the pods that are pending now
  flotilla whatif -f web.yaml                             where would these pods go?
  flotilla whatif -f web.yaml --add-nodes 20 --like n1    and with 20 more nodes like n1?
  flotilla whatif --drain n1 n2                           do the pods of these nodes fit elsewhere?
  flotilla whatif -f web.yaml --config other.yaml         with another scheduler configuration?
  flotilla whatif --node-groups groups.yaml               the cheapest nodes that make all pods fit
  flotilla whatif -f web.yaml --from today                on the state in the folder of flotilla dump

groups.yaml:
  - {name: small, like: n1, max: 20, price: 1}
  - {name: large, max: 5, price: 3.5, template: {metadata: {labels: {size: l}}, status: {allocatable: {cpu: "32"}}}}
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_question(command)
    add_numbers(command, ("--round-size", 1, 1, "pods to decide together at most, all there at once"))
    command.add_argument("--node-groups", metavar="FILE", help="find the cheapest nodes of these groups that help")
    add_numbers(command, ("--steps", 200, 1, "sets of nodes to try for --node-groups"))
    add_output(command, "text", "json")
    add_nats_flags(command)


def add_question(command: argparse.ArgumentParser) -> None:
    """Flags about state and changes."""
    command.add_argument("-f", "--filename", action="append", default=[], metavar="FILE", help="objects; - is stdin")
    add_numbers(command, ("--add-nodes", 0, 0, "nodes to add, like the one named by --like"))
    command.add_argument("--like", default="", metavar="NODE", help="the node that new ones are like")
    command.add_argument("--remove", nargs="+", default=[], metavar="NODE", help="nodes to remove")
    command.add_argument("--drain", nargs="+", default=[], metavar="NODE", help="nodes to drain")
    command.add_argument("--config", metavar="FILE", help="a KubeSchedulerConfiguration instead of the pipeline's")
    command.add_argument("--from", dest="folder", metavar="DIR", help="ask about a dump instead of a running pipeline")
    add_numbers(command, ("--timeout", TIMEOUT, 1, "seconds for the answer"))


def run(options: argparse.Namespace) -> int:
    import msgspec

    question = msgspec.structs.replace(question_of(options), round_size=options.round_size)
    if options.node_groups is not None:
        groups = node_groups(options.node_groups)
        question = msgspec.structs.replace(question, node_groups=groups, steps=options.steps)
    answer = answer_to(question, options)
    if options.output == "json":
        print(json.dumps(plain(answer), indent=2, ensure_ascii=False))
    else:
        for line in lines(answer):
            print(line)
    return 0 if all(pod.verdict == "scheduled" for pod in answer.pods) else 1


def question_of(options: argparse.Namespace) -> "Question":
    """UserError if a file cannot be read."""
    from shared.errors import UserError
    from tools.whatif.answer import Question
    from tools.whatif.documents import documents

    manifests = [each for file in options.filename for each in documents(file, _text(file))]
    config = None
    if options.config is not None:
        found = documents(options.config, _text(options.config))
        if len(found) != 1 or not isinstance(found[0], dict):
            raise UserError(f"{options.config}: expected one KubeSchedulerConfiguration")
        config = found[0]
    return Question(manifests, options.add_nodes, options.like, options.remove, options.drain, config)


def node_groups(file: str) -> list[Any]:
    import msgspec

    from shared.errors import UserError
    from tools.whatif.answer import NodeGroup
    from tools.whatif.documents import documents

    found = [each for part in documents(file, _text(file)) for each in (part if isinstance(part, list) else [part])]
    try:
        return msgspec.convert(found, list[NodeGroup])
    except msgspec.ValidationError as cause:
        raise UserError(f"{file}: a list of groups with name, max, price, and like or template: {cause}") from None


def answer_to(question: "Question", options: argparse.Namespace) -> "Answer":
    from tools.whatif.answering import answer
    from tools.whatif.engine import deadline_check
    from tools.whatif.extending import calls

    live, pods_on = asyncio.run(_state(question, options))
    with calls() as converse:
        return answer(live, question, pods_on, deadline_check(options.timeout), converse)


async def _state(question: "Question", options: argparse.Namespace) -> "tuple[LiveState, PodsOn]":
    from tools import live_state
    from tools.cli.service_client import connected
    from tools.whatif.answer import nodes_to_read

    if options.folder is not None:
        folder = Path(options.folder)
        live = live_state.read(folder)
        names = nodes_to_read(question)
        return live, live_state.read_pods(folder, names) if names else {}
    async with connected(options) as client:
        live = await live_state.load(client)
        known = {each.node.name for each in live.state.nodes}
        names = [name for name in nodes_to_read(question) if name in known]
        return live, {name: await live_state.pods_on(client, name) for name in names}


def _text(file: str) -> str:
    return read_input(file).decode(errors="replace")


# As text


def lines(answer: "Answer") -> Iterator[str]:
    """The verdict first, then pods, victims and reasons."""
    yield _verdict(answer)
    if answer.needed is not None:
        yield ""
        yield from _needed(answer)
    if answer.pods:
        yield ""
        shown = answer.pods[:MAX_ROWS]
        yield from table([("POD", "FROM", "RESULT"), *(_row(pod) for pod in shown)])
        if len(answer.pods) > len(shown):
            yield f"and {len(answer.pods) - len(shown):,} more: -o json lists all"
    if answer.victims:
        yield ""
        first = answer.victims[:MAX_ROWS]
        rows = [(each.pod, str(each.priority), each.node, each.preemptor, ", ".join(each.violates)) for each in first]
        head = ("VICTIM", "PRIORITY", "NODE", "PREEMPTOR", "VIOLATES")
        width = len(head) if any(each.violates for each in first) else len(head) - 1
        yield from table([row[:width] for row in (head, *rows)])
    reasons = _reasons(answer.pods)
    if reasons:
        yield ""
        yield from reasons
    for key in answer.lost:
        yield f"nobody recreates pod {key}: it has no controller"
    for note in answer.notes:
        yield f"note: {note}"


def _verdict(answer: "Answer") -> str:
    total, scheduled = len(answer.pods), answer.count("scheduled")
    if not total:
        return "no pod is pending"
    nodes = f" on {_some(len(answer.nodes), 'node')}" if scheduled else ""
    what = _some(total, "pod") if scheduled in (0, total) else f"{scheduled:,} of {_some(total, 'pod')}"
    head = f"{'none of ' if not scheduled else ''}{what} would be scheduled{nodes}"
    counts = Counter(pod.verdict for pod in answer.pods if pod.verdict != "scheduled")
    rest = "".join(f", {count:,} {verdict}" for verdict, count in sorted(counts.items()))
    victims = f"; {_some(len(answer.victims), 'pod')} would be preempted" if answer.victims else ""
    return f"{head}{rest}{victims}"


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _needed(answer: "Answer") -> Iterator[str]:
    needed = answer.needed
    if needed is None:
        return
    how = "no cheaper set does" if needed.proven else "cheaper sets may do: more --steps would tell"
    what = ", ".join(f"{count} {name}" for name, count in needed.counts.items()) or "no node"
    yield f"needed: {what}; price {needed.price:g} ({how}; {needed.steps} sets tried)"
    if not needed.complete:
        yield "some pods would not fit with all nodes that the groups allow"


def _row(pod: "PodAnswer") -> tuple[str, str, str]:
    result = pod.node if pod.verdict == "scheduled" else pod.verdict
    if pod.victims:
        result += f" (preempts {len(pod.victims)})"
    return f"{pod.namespace}/{pod.name}", pod.origin, result


def _reasons(pods: Sequence["PodAnswer"]) -> list[str]:
    """Each reason once, with the pods that have it."""
    by_reason: dict[str, list[str]] = {}
    for pod in pods:
        if pod.verdict != "scheduled":
            by_reason.setdefault(f"{pod.verdict}: {pod.message}", []).append(f"{pod.namespace}/{pod.name}")
    found = []
    for reason, keys in by_reason.items():
        more = f" and {len(keys) - MAX_EXAMPLES:,} more" if len(keys) > MAX_EXAMPLES else ""
        found.append(f"{', '.join(keys[:MAX_EXAMPLES])}{more} {reason}")
    return found
