"""flotilla permit: list pods that wait for a permit; allow or reject them."""

import argparse
import asyncio
import json
import time
from typing import TYPE_CHECKING, NamedTuple

from tools.cli.arguments import PodName, add_nats_flags, add_output, add_pod, pod_name
from tools.cli.output import age, table

if TYPE_CHECKING:
    from shared.messages.binding import PermitPending
    from tools.cli.service_client import ServiceClient

DISCOVERY = 1.2
"""Seconds in which every binder is heard: each sends two heartbeats a second."""
REPLY_TIMEOUT = 3.0
"""Seconds for a live binder to reply."""
POLL = 0.02
HEAD = ("POD", "NODE", "BINDER", "SINCE", "WAITS FOR")
DEFAULT_REASON = "rejected by hand"

DESCRIPTION = """\
A Permit plugin can make a scheduled pod wait before it is bound. Exit code 1: the pod is not
waiting, or no binder replies.
"""
EXAMPLES = """\
examples:
  flotilla permit list
  flotilla permit allow shop/web-1                        for all plugins that it waits for
  flotilla permit allow shop/web-1 --plugin Approval      for this plugin only
  flotilla permit reject shop/web-1 --reason "not today"  send it back to the queue
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list waiting pods, their nodes, binders and plugins")
    add_output(listing, "table", "json")
    add_nats_flags(listing)
    listing.set_defaults(act=_list)
    allowing = actions.add_parser("allow", help="let a pod be bound", description="Grants a waiting pod its permit.")
    rejecting = actions.add_parser(
        "reject", help="send a pod back to the queue", description="Denies a waiting pod its permit."
    )
    for action in (allowing, rejecting):
        add_pod(action)
        action.add_argument("--plugin", metavar="PLUGIN", help="only for this plugin (default: all that it waits for)")
        add_nats_flags(action)
    rejecting.add_argument(
        "--reason", default=DEFAULT_REASON, metavar="TEXT", help=f"shown to its owner (default {DEFAULT_REASON})"
    )
    allowing.set_defaults(act=_answer, allow=True)
    rejecting.set_defaults(act=_answer, allow=False)


def run(options: argparse.Namespace) -> int:
    code: int = asyncio.run(options.act(options))
    return code


class Held(NamedTuple):
    """A waiting pod and its binder."""

    binder: str
    pod: "PermitPending"


class Gathered(NamedTuple):
    """`held`: longest wait first. `silent`: live binders that have not replied. `more`: waiting pods not listed."""

    held: list[Held]
    binders: int
    silent: list[str]
    more: int


async def gather(client: "ServiceClient") -> Gathered:
    """Ask all binders; ClusterError if none replies."""
    import secrets

    from shared.bus import Envelope
    from shared.bus.subjects import BINDER_BEATS, BINDER_PERMITS, BINDER_WAITING
    from shared.errors import ClusterError
    from shared.messages.binding import BinderBeat, ListPermits, PermitHeard, Permits

    question = ListPermits(secrets.token_hex(8))
    answers: dict[str, Permits] = {}
    living: set[str] = set()

    def on_reply(message: Permits | PermitHeard, envelope: Envelope) -> None:
        if isinstance(message, Permits) and message.id == question.id:
            answers[message.binder] = message

    def on_beat(beat: BinderBeat, envelope: Envelope) -> None:
        living.add(beat.binder)

    subscriptions = (
        await client.bus.subscribe(BINDER_WAITING, (Permits, PermitHeard), on_reply),
        await client.bus.subscribe(BINDER_BEATS, BinderBeat, on_beat),
    )
    client.bus.post(BINDER_PERMITS, question)
    began = time.monotonic()
    while (waited := time.monotonic() - began) < REPLY_TIMEOUT:
        if waited > DISCOVERY and answers and living <= answers.keys():
            break
        await asyncio.sleep(POLL)
    for subscription in subscriptions:
        await subscription.close()
    if not answers:
        raise ClusterError(f"no binder replied within {REPLY_TIMEOUT:g} s ({client.where})")
    held = [Held(binder, pod) for binder, answer in answers.items() for pod in answer.waiting]
    held.sort(key=lambda each: (-_waited(each.pod), each.pod.namespace, each.pod.name))
    more = sum(answer.more for answer in answers.values())
    return Gathered(held, len(answers), sorted(living - answers.keys()), more)


async def _list(options: argparse.Namespace) -> int:
    import msgspec

    from tools.cli.service_client import connected

    async with connected(options) as client:
        found = await gather(client)
    if options.output == "json":
        fields = [{"binder": each.binder} | msgspec.structs.asdict(each.pod) for each in found.held]
        shown = {"binders": found.binders, "silent": found.silent, "more": found.more, "waiting": fields}
        print(json.dumps(shown, indent=2, ensure_ascii=False))
        return 0
    if found.held:
        rows = [
            (f"{pod.namespace}/{pod.name}", pod.node, binder, age(_waited(pod)), _plugins(pod))
            for binder, pod in found.held
        ]
        print("\n".join(table([HEAD, *rows])))
    else:
        print(f"no pod is waiting for a permit (binders: {found.binders})")
    if found.more:
        print(f"{found.more:,} more")
    for binder in found.silent:
        print(f"{binder} is alive but does not reply")
    return 0


async def _answer(options: argparse.Namespace) -> int:
    from shared.bus.subjects import BINDER_PERMITS
    from shared.messages.binding import PermitAnswer
    from tools.cli.service_client import connected

    wanted = pod_name(options)
    async with connected(options) as client:
        before = _find(await gather(client), wanted, options.plugin)
        plugins = [options.plugin] if options.plugin else list(before.pod.plugins)
        allow = options.allow
        reason = "" if allow else options.reason
        for plugin in plugins if allow else plugins[:1]:
            answer = PermitAnswer(before.pod.uid, plugin, allow, reason, attempt=before.pod.attempt)
            client.bus.post(BINDER_PERMITS, answer)
        after = await gather(client)  # on the same subject, so binders read it after the answers
    print(outcome(before, after, plugins, reason, allow=allow))
    return 0


def outcome(before: Held, after: Gathered, plugins: list[str], reason: str, *, allow: bool) -> str:
    """The result of an answer; ClusterError if it had no effect."""
    from shared.errors import ClusterError

    pod, binder = before.pod, before.binder
    name = f"{pod.namespace}/{pod.name}"
    still = next((each for each in after.held if each.pod.uid == pod.uid), None)
    if binder in after.silent:
        raise ClusterError(f"{name}: sent to {binder}, which does not reply; the result is unknown")
    if still is not None and (not allow or any(plugin in still.pod.plugins for plugin in plugins)):
        raise ClusterError(f"{name} is still waiting at {still.binder}: {_plugins(still.pod)}")
    if not allow:
        return f"{name}: rejected for {plugins[0]} ({reason}); back in the queue, no longer assumed on {pod.node}"
    if still is None:
        return f"{name}: allowed for {', '.join(plugins)}; {binder} is binding it to {pod.node}"
    return f"{name}: allowed for {', '.join(plugins)}; still waiting at {still.binder} for {_plugins(still.pod)}"


def _find(found: Gathered, wanted: PodName, plugin: str | None) -> Held:
    """The newest wait, in case a former binder still lists the pod."""
    from shared.errors import ClusterError

    held = [each for each in found.held if (each.pod.namespace, each.pod.name) == wanted]
    if not held:
        unlisted = f", or is one of {found.more:,} pods not listed" if found.more else ""
        silent = f"; {', '.join(found.silent)} did not reply" if found.silent else ""
        raise ClusterError(f"{wanted} is not waiting for a permit (binders: {found.binders}){unlisted}{silent}")
    newest = held[-1]
    if plugin and plugin not in newest.pod.plugins:
        raise ClusterError(f"{wanted} is not waiting for {plugin}, but for {_plugins(newest.pod)}")
    return newest


def _waited(pod: "PermitPending") -> float:
    return time.time() - pod.since if pod.waited is None else pod.waited


def _plugins(pod: "PermitPending") -> str:
    return ", ".join(f"{plugin} ({max(0.0, left):.0f} s left)" for plugin, left in pod.plugins.items())
