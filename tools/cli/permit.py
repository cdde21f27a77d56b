"""flotilla permit: which pods wait for a permit, and to give or refuse it by hand."""

import argparse
import asyncio
import json
import time
from typing import TYPE_CHECKING, NamedTuple

from tools.cli.pods import PodName, add_nats_flags, add_pod, age, pod_name, table

if TYPE_CHECKING:
    from shared.messages.permits import PermitPending, Permits
    from tools.cli.asking import Asker

GATHERING = 1.2
"""Seconds until every binder has been heard of: each beats twice a second."""
PATIENCE = 3.0
"""Seconds that a binder which lives may take to answer."""
LOOK = 0.02
HEAD = ("POD", "NODE", "BINDER", "SINCE", "WAITS FOR")
BY_HAND = "rejected by hand"

EXAMPLES = """\
examples:
  flotilla permit list
  flotilla permit allow shop/web-1                        whatever it waits for
  flotilla permit allow shop/web-1 --plugin Approval      this plugin's permit alone
  flotilla permit reject shop/web-1 --reason "not today"  back to the queue
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "permit",
        help="show pods that wait for a permit, allow or reject them",
        description="A Permit plugin can have a pod that is decided wait before it is bound. Exit code 1: the pod\n"
        "does not wait, or no binder answers.",
        epilog=EXAMPLES,
    )
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show who waits, where, for what and for how long")
    listing.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default table")
    add_nats_flags(listing)
    listing.set_defaults(run=run_list)
    allowing = actions.add_parser(
        "allow", help="let a pod be bound", description="Gives a pod the permit it waits for."
    )
    rejecting = actions.add_parser(
        "reject", help="send a pod back to the queue", description="Refuses a pod the permit it waits for."
    )
    for action in (allowing, rejecting):
        add_pod(action)
        action.add_argument("--plugin", metavar="PLUGIN", help="in whose name (default: all that it waits for)")
        add_nats_flags(action)
    rejecting.add_argument("--reason", default=BY_HAND, metavar="TEXT", help=f"told to its owner (default {BY_HAND})")
    allowing.set_defaults(run=run_allow)
    rejecting.set_defaults(run=run_reject)


def run_list(options: argparse.Namespace) -> int:
    return asyncio.run(_list(options))


def run_allow(options: argparse.Namespace) -> int:
    return asyncio.run(_answer(options, pod_name(options), allow=True))


def run_reject(options: argparse.Namespace) -> int:
    return asyncio.run(_answer(options, pod_name(options), allow=False))


class Held(NamedTuple):
    """A pod that waits, and the binder that has it."""

    binder: str
    pod: "PermitPending"


class Gathered(NamedTuple):
    """`silent`: binders that live and have not answered. `more`: pods that wait and were not named."""

    held: list[Held]
    binders: int
    silent: list[str]
    more: int


async def gather(asker: "Asker") -> Gathered:
    """Asks all binders; ClusterError if there is none."""
    import secrets

    from shared.bus import Envelope
    from shared.bus.subjects import BINDER_BEATS, BINDER_PERMITS, BINDER_WAITING
    from shared.errors import ClusterError
    from shared.messages.binding import BinderBeat
    from shared.messages.permits import ListPermits, Permits

    question = ListPermits(secrets.token_hex(8))
    answers: dict[str, Permits] = {}
    living: set[str] = set()

    def hear(message: Permits, envelope: Envelope) -> None:
        if message.id == question.id:
            answers[message.binder] = message

    def notice(beat: BinderBeat, envelope: Envelope) -> None:
        living.add(beat.binder)

    subscriptions = (
        await asker.bus.subscribe(BINDER_WAITING, Permits, hear),
        await asker.bus.subscribe(BINDER_BEATS, BinderBeat, notice),
    )
    asker.bus.post(BINDER_PERMITS, question)
    began = time.monotonic()
    while (waited := time.monotonic() - began) < PATIENCE:
        if waited > GATHERING and answers and living <= answers.keys():
            break
        await asyncio.sleep(LOOK)
    for subscription in subscriptions:
        await subscription.close()
    if not answers:
        raise ClusterError(f"no binder answers within {PATIENCE:g} s ({asker.where})")
    return _gathered(answers, living)


def _gathered(answers: "dict[str, Permits]", living: set[str]) -> Gathered:
    """The one that has waited longest first."""
    held = [Held(binder, pod) for binder, answer in answers.items() for pod in answer.waiting]
    held.sort(key=lambda each: (-_waited(each.pod), each.pod.namespace, each.pod.name))
    more = sum(answer.more for answer in answers.values())
    return Gathered(held, len(answers), sorted(living - answers.keys()), more)


async def _list(options: argparse.Namespace) -> int:
    from tools.cli.asking import asking

    async with asking(options) as asker:
        found = await gather(asker)
    if options.output == "json":
        print(_as_json(found))
        return 0
    if found.held:
        print("\n".join(table([HEAD, *map(_row, found.held)])))
    else:
        print(f"no pod waits for a permit (binders: {found.binders})")
    if found.more:
        print(f"{found.more:,} more")
    for binder in found.silent:
        print(f"{binder} lives and does not answer")
    return 0


async def _answer(options: argparse.Namespace, wanted: PodName, *, allow: bool) -> int:
    from shared.bus.subjects import BINDER_PERMITS
    from shared.messages.binding import PermitAnswer
    from tools.cli.asking import asking

    async with asking(options) as asker:
        before = _find(await gather(asker), wanted, options.plugin)
        plugins = [options.plugin] if options.plugin else list(before.pod.plugins)
        reason = "" if allow else options.reason
        for plugin in plugins if allow else plugins[:1]:
            asker.bus.post(BINDER_PERMITS, PermitAnswer(before.pod.uid, plugin, allow, reason))
        after = await gather(asker)  # on the same subject, so it is read after what was posted before
    print(outcome(before, after, plugins, reason, allow=allow))
    return 0


def outcome(before: Held, after: Gathered, plugins: list[str], reason: str, *, allow: bool) -> str:
    """What has become of it; ClusterError if that is nothing."""
    from shared.errors import ClusterError

    pod, binder = before.pod, before.binder
    name = f"{pod.namespace}/{pod.name}"
    still = next((each for each in after.held if each.pod.uid == pod.uid), None)
    if binder in after.silent:
        raise ClusterError(f"{name}: {binder} has been told, and does not say what became of it")
    if not allow:
        if still is not None:
            raise ClusterError(f"{name} waits all the same, at {still.binder}: {_plugins(still.pod)}")
        return f"{name}: rejected for {plugins[0]} ({reason}); {binder} gives up {pod.node}, the queue has it back"
    if still is None:
        return f"{name}: allowed for {', '.join(plugins)}; {binder} goes on to bind it to {pod.node}"
    if any(plugin in still.pod.plugins for plugin in plugins):
        raise ClusterError(f"{name} waits all the same, at {still.binder}: {_plugins(still.pod)}")
    return f"{name}: allowed for {', '.join(plugins)}; at {still.binder} it still waits for {_plugins(still.pod)}"


def _find(found: Gathered, wanted: PodName, plugin: str | None) -> Held:
    """The newest, should a binder not know yet that it has lost it."""
    from shared.errors import ClusterError

    held = [each for each in found.held if (each.pod.namespace, each.pod.name) == wanted]
    if not held:
        unnamed = f", or is one of {found.more:,} that were not named" if found.more else ""
        silent = f"; {', '.join(found.silent)} did not answer" if found.silent else ""
        raise ClusterError(f"{wanted} waits for no permit (binders: {found.binders}){unnamed}{silent}")
    newest = held[-1]
    if plugin and plugin not in newest.pod.plugins:
        raise ClusterError(f"{wanted} does not wait for {plugin}, but for {_plugins(newest.pod)}")
    return newest


def _waited(pod: "PermitPending") -> float:
    return time.time() - pod.since if pod.waited is None else pod.waited


def _row(held: Held) -> tuple[str, ...]:
    pod = held.pod
    return f"{pod.namespace}/{pod.name}", pod.node, held.binder, age(_waited(pod)), _plugins(pod)


def _plugins(pod: "PermitPending") -> str:
    return ", ".join(f"{plugin} ({max(0.0, left):.0f} s left)" for plugin, left in pod.plugins.items())


def _as_json(found: Gathered) -> str:
    waiting = [
        {"binder": each.binder} | {field: getattr(each.pod, field) for field in each.pod.__struct_fields__}
        for each in found.held
    ]
    shown = {"binders": found.binders, "silent": found.silent, "more": found.more, "waiting": waiting}
    return json.dumps(shown, indent=2, ensure_ascii=False)
