"""Builds in which one safeguard is switched off, to show that the simulation notices.

Each names the scene and the mishaps that reveal it, so that a few seeds are enough.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

import services.binder.api_calls as api_calls
import services.binder.bind_steps as bind_steps
import services.binder.eviction_calls as eviction_calls
import services.cycle.round.assign as assign
import services.snapshot.commit as commit
import services.snapshot.commit_checks as commit_checks
import services.snapshot.dispatch.claim_fences as claim_fences
import services.snapshot.dispatch.pod_lookups as pod_lookups
import services.snapshot.state.object_overlay as object_overlay
import services.snapshot.store.claim_barrier as claim_barrier
import services.watcher.bodies as bodies
import shared.kube.client as kube_client
import shared.kube.election as election
import shared.plugins.devices.claim_calls as claim_calls
import shared.plugins.devices.claim_release as claim_release
import shared.plugins.devices.pre_bind as pre_bind
import shared.plugins.preemption as choice
import shared.store.term as term
import shared.store.writer as writer
import shared.terms as terms
from flotilla.results import SUCCESS
from services.binder.claim_releases import ClaimReleases
from services.binder.events import Done
from services.binder.eviction_calls import EvictionCalls
from services.binder.extension_points import Failure, PermitWait
from services.cycle.preemption.candidate_search import CandidateSearch
from services.cycle.round.volumes import RoundVolumes
from services.queue.watch_decoder import WatchDecoder
from services.snapshot.commit_checks import CommitChecks
from services.snapshot.device_checks import DeviceChecks
from services.snapshot.dispatch.term_end import TermEnd
from services.snapshot.event_handlers import EventHandlers
from services.snapshot.state.published import Published
from services.snapshot.store.terms import Terms
from services.watcher.kind_state import VersionOrder
from shared.bus.wire import MessageReader, Refusal, RefusedMessage
from shared.errors import InvariantBroken, UserError
from shared.kube.claims import ObservedClaim, list_claims
from shared.kube.fencing import Fenced
from shared.kube.listwatch import ListWatch
from shared.messages.binding import LONGEST_WAIT
from shared.messages.codec import encode
from shared.plugins.volumes.volumebinding import VolumeBinding
from shared.runtime.leadership import LaterTerm, Leadership
from shared.store import scripts
from shared.store.errors import StateLost, StoreUnreachable
from shared.telemetry.fault import Fault
from shared.watch import WatchReader
from testing.simulation.drawing import Arguments
from testing.simulation.processes import Process

Patch = tuple[object, str, object]
"""A class or module, an attribute of it, and what replaces that."""


class Broken:
    """`scene`, `mishaps`: those that reveal it. `seconds`: how long there is a mishap `every` second or so.

    `often`: weights of actions that reveal it; `arguments`: of mishaps. `first`: a seed near which it is known to fail,
    for tests.
    """

    def __init__(
        self,
        scene: str,
        mishaps: str,
        *patches: Patch,
        seconds: float = 15.0,
        every: float = 1.0,
        first: int = 1,
        often: Mapping[str, float] | None = None,
        arguments: Arguments | None = None,
    ) -> None:
        self.scene, self.mishaps, self.patches = scene, mishaps, patches
        self.seconds, self.every, self.first = seconds, every, first
        self.often, self.arguments = often or {}, arguments or {}


@contextmanager
def broken_build(name: str) -> Iterator[None]:
    """Switch off the safeguard of this name, if any; UserError if there is no such build."""
    if name and name not in BROKEN:
        raise UserError(f"--broken: {name!r} is none of: {', '.join(BROKEN)}")
    with ExitStack() as stack:
        for target, attribute, new in BROKEN[name].patches if name else ():
            stack.enter_context(patch.object(target, attribute, new))
        yield


_with_precondition = bind_steps._with_precondition
_on_pending_pod = EventHandlers._on_pending_pod
_on_node = EventHandlers._on_node
_why_not = eviction_calls._why_not
_read = MessageReader.read
_load_outline = bodies.load_outline
_on_bind_called = bind_steps.BindSteps._on_bind_called
_version_now = ListWatch._version_now
_put = claim_calls.put
_reserved = assign._reserved


def _nothing(*_: object) -> None:
    pass


async def _nothing_async(*_: object) -> None:
    pass


def _always(*_: object) -> bool:
    return True


def _put_at_any_version(path: str, body: Any, what: str) -> Any:
    metadata = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
    return claim_calls.put(path, body | {"metadata": metadata}, what)


async def _never_async(*_: object) -> bool:
    return False


def _without_precondition(call: Any, order: Any) -> Any:
    made = _with_precondition(call, order)
    made.body.get("metadata", {}).pop("resourceVersion", None)
    return made


async def _only_look(client: Any, pod: Any, version: str, by: str) -> Fenced:
    standing = await client.observe_pod(pod.namespace, pod.name)
    return Fenced(standing if standing is not None and standing.uid == pod.uid else None)


def _set_settled(self: object, name: str, value: object) -> None:
    object.__setattr__(self, name, True if name == "settled" else value)


def _believe_pending_pod(self: Any, pod: Any, now: float) -> Any:
    self.is_bound = lambda uid: False
    return _on_pending_pod(self, pod, now)


def _nominated_anywhere(pod: Any, evict: Any) -> str:
    return _why_not(replace(pod, nominated=""), evict)


def _unguarded(script: scripts.Script) -> scripts.Script:
    """The script without the comparison of epochs and runs."""
    return scripts.Script(script.text.replace(scripts._GUARD_RUN, "").replace(scripts._GUARD, ""))


def _read_strictly(self: Any, raw: Any, headers: Any) -> Any:
    message = _read(self, raw, headers)
    if len(encode(message)) < len(raw):
        raise RefusedMessage(Refusal.UNDECODABLE, "a field is not known")
    return message


def _outline_without_load(pod: Any) -> Any:
    outline = _load_outline(pod)
    return replace(outline, spec=replace(outline.spec, containers=[]))


def _skip_to(self: Any, newest: int, effects: Any, now: float) -> None:
    self._seq = newest


async def _write_once(self: Any, persists: Any) -> bool:
    with suppress(StoreUnreachable):
        await self._writer.write(persists)
    return True


async def _never_lost(self: Any, persists: Any) -> bool:
    with suppress(StateLost, InvariantBroken):
        await self._writer.write(persists)
    return True


def _fail_unanswered_bind(self: Any, attempt: Any, result: Any, now: float) -> None:
    if isinstance(result, Done):
        _on_bind_called(self, attempt, result, now)
    else:
        self._fail_bind(attempt, Failure(result.message), now, fenced=True)


def _node_without_pods(self: Any, node: Any, problem: str) -> Any:
    with patch.object(self._pods, "on_node", lambda _: ()):
        return _on_node(self, node, problem)


def _latest_version(self: Any) -> str:
    resumes = self._newest is not None
    version = _version_now(self)
    return str(self._client._transport._server.version) if resumes else version


def _put_changed(change: Callable[[dict[str, Any]], object]) -> Callable[[str, dict[str, Any], str], Any]:
    """PreBind writes objects changed like this."""

    def put(path: str, body: dict[str, Any], what: str) -> Any:
        body = msgspec.json.decode(msgspec.json.encode(body))
        change(body)
        return _put(path, body, what)

    return put


async def _only_read(client: Any, key: str, uid: str, mark: str) -> ObservedClaim | None:
    async for claim in list_claims(client):
        if claim.key == key and uid in ("", claim.uid):
            return claim
    return None


def _reserved_without_claims(info: Any, placement: Any) -> Any:
    return (each for each in _reserved(info, placement) if each[0][0] != "resource claim")


STILL = dict.fromkeys(("delete", "update", "finish", "renew", "change_node", "recreate", "grow", "nominate"), 0.0)
"""Without the actions that change nodes, so that most commits rest on the state that the judge sees."""

BROKEN: Mapping[str, Broken] = {
    # Bindings name no version of their pod, so fencing stops none of them.
    "bindings-without-version": Broken(
        "plain", "late_calls kill pause", (bind_steps, "_with_precondition", _without_precondition), first=3
    ),
    # A place is given away once the pod was looked at, without a touch.
    "fence-without-touch": Broken(
        "plain", "late_calls kill pause", (pod_lookups, "fence", _only_look), (api_calls, "fence", _only_look), first=1
    ),
    # The snapshot takes every decision of the cycle, no matter what has changed since the evaluation.
    "commits-unverified": Broken(
        "plain", "messages pause lose_lease", (CommitChecks, "decisions", lambda *_: {}), first=5
    ),
    # A Redis that went back in time passes for one that has everything.
    "histories-alike": Broken(
        "plain", "redis_rolls_back late_calls", (term, "_history", lambda _: "the only one"), seconds=30.0, first=112
    ),
    # The same, where a replica that lagged behind is the new master, and the old one still answers some.
    "masters-alike": Broken(
        "plain", "redis_fails_over late_calls kill", (term, "_history", lambda _: "the only one"), seconds=30.0, first=3
    ),
    # Redis takes the writes of a snapshot that was deposed.
    "deposed-writes": Broken(
        "plain",
        "pause lose_lease",
        (writer, "APPLY", _unguarded(scripts.APPLY)),
        (writer, "FINISH", _unguarded(scripts.FINISH)),
        first=2,
    ),
    # Binders evict victims without a look at the preemptor.
    "evictions-unasked": Broken(
        "preemption",
        "stall replay",
        (EvictionCalls, "_check", _nothing_async),
        seconds=30.0,
        every=5.0,
        often={"create": 10.0, "delete": 8.0, "rush": 2.0, "go": 3.0},
        first=25,
    ),
    # Binders evict victims for a pod that is pending, wherever it is nominated by then.
    "nominated-anywhere": Broken(
        "preemption",
        "calls",
        (EvictionCalls, "_check_nomination", _nothing_async),
        (eviction_calls, "_why_not", _nominated_anywhere),
        seconds=25.0,
        often={"create": 10.0, "nominate": 20.0, "go": 6.0, "delete": 0.0, "recreate": 0.0},
        first=17,
    ),
    # A pod is deleted by its name, even if another one has that name by now.
    "deletes-by-name": Broken(
        "preemption",
        "late_calls",
        (kube_client, "delete_body", lambda *_: b"{}"),
        seconds=14.0,
        often={"recreate": 8.0, "go": 0.5, "delete": 0.2},
        first=1,
    ),
    # What a core raises is counted, and the process goes on with half of a change.
    "faults-swallowed": Broken("plain", "fault", (Fault, "report", _nothing)),
    # A term begins as if the one before had left nothing under way, however that one ended.
    "ends-settled": Broken("plain", "total late_calls", (Leadership, "__setattr__", _set_settled), first=9),
    # The outline of a bound pod that is too large for a message leaves out its requests.
    "large-weigh-nothing": Broken("plain", "messages", (bodies, "load_outline", _outline_without_load)),
    # A message with a field that is not known is refused, where a later release sends it.
    "unknown-fields-refused": Broken("plain", "release", (MessageReader, "read", _read_strictly)),
    # The snapshot takes a decision that nothing has happened to since without a look at its own state.
    "proposals-believed": Broken("plain", "lies", (CommitChecks, "_check_room", _nothing), first=25),
    # The same, only about host ports.
    "ports-unverified": Broken(
        "wishes",
        "lies",
        (commit_checks, "_conflicts", lambda *_: False),
        every=3.0,
        often={"create": 0.0, "crowd": 8.0, "delete": 12.0},
        first=4,
    ),
    # A snapshot that is asked to end says at once that nothing it ordered is under way.
    "stops-settled": Broken(
        "plain", "stop late_calls", (TermEnd, "run", _nothing_async), (TermEnd, "settled", True), first=3
    ),
    # The snapshot and the queue read on where messages of the watcher are missing.
    "gaps-unnoticed": Broken("plain", "partition bus_down", (WatchReader, "_miss", _skip_to), first=2),
    # A watch that broke off goes on at the latest version, not at the last one that it showed.
    "watches-resume-late": Broken("plain", "watches_break", (ListWatch, "_version_now", _latest_version), first=3),
    # A write that Redis has not answered counts as done.
    "unwritten-counts": Broken("plain", "redis_down kill late_calls", (Terms, "write", _write_once), first=2),
    # A standby of the snapshot continues the state in Redis though it does not know all differences from its own.
    "differences-unknown": Broken("plain", "messages stop lose_lease pause", (Published, "ends_at", _always), first=12),
    # The snapshot goes on with its term where Redis has lost the state.
    "losses-ignored": Broken("plain", "redis_flushed kill", (Terms, "write", _never_lost), first=2),
    # A leader whose term was used before goes on in it.
    "terms-fall-back": Broken(
        "plain", "delete_lease kill", (LaterTerm, "leave", _nothing), first=5, seconds=10.0, every=0.5
    ),
    # Followers keep to the newest term and number that they have heard of, though nobody goes on with it.
    "newest-never-left": Broken("plain", "forge", (terms, "REFUTED_AFTER", inf), first=7),
    # A leader goes on from whatever term its Lease names.
    "any-term-possible": Broken("plain", "raise_lease", (election, "is_possible", _always)),
    # The snapshot takes decisions of one gang one by one.
    "gangs-in-parts": Broken(
        "gangs", "messages pause", (commit, "units", lambda decisions: [[each] for each in decisions])
    ),
    # Processes count deadlines by the time of day.
    "clocks-of-day": Broken("waits", "clock", (Process, "clock", Process.wall), first=4),
    # A wait for a permit does not end when its time is over.
    "permits-endless": Broken(
        "waits", "messages", (PermitWait, "deadline", property(lambda wait: wait.began + LONGEST_WAIT))
    ),
    # The snapshot takes every decision about claims and volumes, and the cycle gives all pods of a round the same ones.
    "volumes-unverified": Broken(
        "waits",
        "messages kill lose_lease pause",
        (RoundVolumes, "take", lambda volumes, info, placement: placement),
        (CommitChecks, "_check_volumes", _nothing),
        (CommitChecks, "_check_volume_restrictions", _nothing),
        first=5,
    ),
    # Of several nodes to preempt on, the choice does not look at disruption budgets.
    "budgets-ignored": Broken(
        "preemption",
        "messages",
        (choice, "_COSTS", tuple(cost for cost in choice._COSTS if cost is not choice._violations)),
    ),
    # What a victim takes from its disruption budget does not count for the next pod of the same search.
    "budgets-not-counted-down": Broken(
        "preemption",
        "messages",
        (CandidateSearch, "_spend", _nothing),
        seconds=9.0,
        often=STILL | {"create": 8.0, "rush": 1.5, "count": 5.0, "go": 4.0},
        first=43,
    ),
    # Workers are not told which pods a node has that comes back, or another one of its name.
    "nodes-come-back-empty": Broken(
        "plain", "messages calls", (EventHandlers, "_on_node", _node_without_pods), often={"renew": 6.0}
    ),
    # A binder binds a pod before its claims have their volumes.
    "volumes-unawaited": Broken("waits", "messages", (VolumeBinding, "pre_bind", lambda *_: SUCCESS), first=3),
    # The snapshot takes every decision about devices.
    "devices-unverified": Broken(
        "devices", "messages kill lose_lease pause", (DeviceChecks, "check", _nothing), first=4
    ),
    # Decisions do not lie over the claims, so other decisions take the same devices until the watch shows them.
    "devices-unassumed": Broken("devices", "messages", (object_overlay, "changes_of_claims", lambda *_: ()), first=2),
    # PreBind writes claims though others have changed them since it read them.
    "claims-without-version": Broken(
        "devices",
        "messages",
        (pre_bind, "put", _put_changed(lambda body: body["metadata"].pop("resourceVersion", None))),
        first=6,
    ),
    # PreBind reserves no claim for the pod.
    "claims-unreserved": Broken(
        "devices",
        "messages",
        (pre_bind, "put", _put_changed(lambda body: body.get("status", {}).pop("reservedFor", None))),
    ),
    # A binder binds a pod before its devices are ready.
    "devices-unawaited": Broken("devices", "messages", (pre_bind, "_poll_until_ready", lambda *_: iter(()))),
    # A run of PreBind that fails takes reservations back though another run relies on them.
    "reservations-taken-back": Broken(
        "devices",
        "cut_off",
        (pre_bind, "_identity", lambda claim: claim["metadata"]["uid"]),
        seconds=10.0,
        every=3.0,
        often={"delete": 8.0},
        first=3,
        arguments={"cut_off": {"at": ("use1/status",), "for": (14.0, 20.0), "api": (3.0, 9.0)}},
    ),
    # Two members of a gang may each allocate the claim that they share.
    "gang-claims-unverified": Broken(
        "devices",
        "messages",
        (assign, "_reserved", _reserved_without_claims),
        (commit_checks, "_contradiction", _nothing),
        often={"create_gang": 12.0, "create": 2.0, "delete": 6.0},
        first=10,
    ),
    # Binders release claims of pods that are assumed, however they have changed.
    "releases-unasked": Broken(
        "devices",
        "kill fault calls late_calls",
        (ClaimReleases, "_is_needed", _never_async),
        (claim_release, "put", _put_at_any_version),
        often={"create": 10.0, "create_gang": 0.0, "delete": 8.0},
        first=420,
    ),
    # Devices of an attempt that is over are free once its claims were looked at, without a touch.
    "claims-unfenced": Broken(
        "devices",
        "late_calls kill",
        (claim_fences, "touch_claim", _only_read),
        (claim_barrier, "touch_claim", _only_read),
        seconds=15.0,
        often={"create": 12.0, "delete": 8.0, "recreate": 3.0, "grow": 0.0},
        first=3,
    ),
    # A binder takes a Bind without an answer for one that was not carried out.
    "unanswered-binds-fail": Broken(
        "plain", "calls late_calls", (bind_steps.BindSteps, "_on_bind_called", _fail_unanswered_bind), first=4
    ),
    # The watcher tells the past again as news, and the snapshot and the queue believe it.
    "watches-go-back": Broken(
        "plain",
        "behind",
        (VersionOrder, "is_old_list", lambda *_: False),
        (VersionOrder, "accept_list", _always),
        (VersionOrder, "accept_event", _always),
        (EventHandlers, "_on_pending_pod", _believe_pending_pod),
        (WatchDecoder, "_stale", lambda *_: []),
        first=2,
    ),
}
"""By the name that `--broken` takes."""
