"""flotilla explain: why a pod is where it is, why not elsewhere, why it is pending, and what would help."""

import argparse
import asyncio
import sys

from tools.cli.arguments import add_nats_flags, add_output, add_pod, pod_name

DESCRIPTION = """\
Explains one pod. Pending: why no node takes it, node by node in groups, what it waits for, and what would help, each
change tried by the scheduler itself before it is shown. Bound: the decision as it was made. Preempted: for whom.
Nothing is changed by asking. Exit code 1: a service does not reply, or nothing is known of the pod or of a node.
"""
EXAMPLES = """\
examples:
  flotilla explain web-1                         why it is pending, or why it is where it is
  flotilla explain -n shop web-1 --node node-7   why not on this node, or how it scores there
  flotilla explain shop/web-1 -o json            everything, for programs
"""
KINDS = frozenset({"pod", "pods", "po", "deployment", "deploy", "replicaset", "rs", "statefulset", "sts", "job"})
"""Kinds that kubectl takes in front of a name."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_pod(command)
    command.add_argument(
        "--node", action="append", metavar="NODE", help="say in detail why this node takes it or not; repeatable"
    )
    add_output(command, "text", "json")
    add_nats_flags(command)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_show(options))


async def _show(options: argparse.Namespace) -> int:
    import msgspec

    from tools.cli.output import terminal_width
    from tools.cli.service_client import connected
    from tools.cli.words import IN_FLIGHT
    from tools.explain.client import LiveSources, explain, held_up
    from tools.explain.text import WIDTH, render
    from tools.status import not_ready

    namespace, name = pod_name(options)
    async with connected(options) as client:
        told = await explain(LiveSources(client), namespace, name, nodes=options.node or ())
        if told.binding:
            told = held_up(told, await not_ready(client.bus))
        elif told.waiting is not None and told.waiting.state in IN_FLIGHT:
            told = msgspec.structs.replace(told, notes=(*told.notes, *await not_ready(client.bus)))
    if options.node and told.state != "pending":
        why = f"--node {' '.join(options.node)}: nodes are judged for a pending pod only"
        told = msgspec.structs.replace(told, notes=(*told.notes, why))
    if told.state == "unknown" and namespace in KINDS and namespace != options.namespace:
        why = f"{namespace!r} was read as a namespace: name a pod, as [NAMESPACE/]POD"
        told = msgspec.structs.replace(told, notes=(*told.notes, why))
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        print(render(told, min(terminal_width(sys.stdout) or WIDTH, WIDTH)))
    is_known = told.state != "unknown" and all(each.exists for each in told.asked_nodes)
    return 0 if is_known else 1
