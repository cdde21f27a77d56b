"""Records who decided, ordered, called and answered what about each pod, at which virtual time.

A Story only listens, so recording does not change the course of a run. Runs that fail are played again with one.
"""

import asyncio
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.kube.events_and_conditions import BINDING_FENCED
from shared.messages.binding import BindingOrders, BindingOutcome, BindingOutcomes, Evict, Withdraw
from shared.messages.codec import Message
from shared.messages.queue import Forgotten
from shared.messages.state import EPOCH_SHIFT, Commit, Committed
from shared.messages.watch import Kind
from shared.model.devices import ResourceClaim
from shared.model.objects import ObjectKind, Pod
from testing.simulation.apiserver import Answer, ApiServer, Change
from testing.simulation.client import Moment, Sent
from testing.simulation.loop import owner
from testing.simulation.world import World

MAX_NOTES = 20_000
"""The latest notes of a run are kept."""
MAX_COMMITS = 64
"""Unanswered commits kept."""
MAX_LINES = 60
FIRST_LINES = 15
"""Lines kept from the beginning of a story longer than MAX_LINES."""
LONGEST = 170
LATE = 0.3
"""Seconds: a call that takes longer is late."""
AT_ONCE = 1e-6
"""Seconds by which rounding may let a timer go off early."""
SERVER = "API server"
SET_STATUS = "set its status"
MINOR_CHANGES = ("condition", "labels", "phase")
_POD_PATH = re.compile(r"/api/v1/namespaces/[^/]+/pods/([^/?]+)(/binding|/status)?")
_CLAIM_PATH = re.compile(r"/apis/resource.k8s.io/v1/namespaces/[^/]+/resourceclaims/?([^/?]+)?(/status)?")
_NAME = re.compile(r"\b[a-z]\w*(?:-\d+)*\b")
_NODE = re.compile(r"\bnode (\w+)")


class Note(NamedTuple):
    """`about`: uids of pods, names of nodes, "node NAME" for what is placed there; empty: the whole run.

    `minor`: left out of long stories.
    """

    at: float
    about: tuple[str, ...]
    by: str
    text: str
    minor: bool = False


class Story:
    def __init__(self) -> None:
        self._notes: deque[Note] = deque(maxlen=MAX_NOTES)
        self._names: dict[str, str] = {}
        self._pods: dict[str, Pod] = {}
        self._nodes: set[str] = set()
        self._claims: dict[str, ResourceClaim] = {}
        self._commits: dict[tuple[int, int], Commit] = {}
        self._orders: set[tuple[str, str, int]] = set()
        self._outcomes: set[tuple[str, str, int, int]] = set()
        self._on_their_way: dict[Sent, None] = {}
        self._server: ApiServer | None = None
        self._ended = False

    # Recording

    def follow(self, world: World) -> None:
        self._server = world.server
        world.on_note.append(lambda text: self._note((), "schedule", text.strip()))
        world.on_end.append(self._end)
        world.server.followers.append(self._on_change)
        world.around.transport.on_call.append(self._on_call)
        world.network.on_post.append(self._on_post)

    @contextmanager
    def of_the_queue(self) -> Iterator[None]:
        """Meanwhile, note every state that a queue gives a pod."""
        record = QueuedPodInfo.record

        def recorded(info: QueuedPodInfo, now: float, state: PodState, why: str) -> None:
            record(info, now, state, why)
            if (process := owner()) is not None:
                self._note((info.pod.uid,), process.name, f"state {state}: {why}", minor=True)

        with patch.object(QueuedPodInfo, "record", recorded):
            yield

    def _note(self, about: tuple[str, ...], by: str, text: str, *, minor: bool = False) -> None:
        if not self._ended:
            self._notes.append(Note(asyncio.get_running_loop().time(), about, by, text, minor))

    def _end(self) -> None:
        """Note the calls in transit and stop: next all processes are killed."""
        now = asyncio.get_running_loop().time()
        for sent in self._on_their_way:
            due = [at for at in sent.due if at > now]
            uid, what = self._asked(sent)
            if uid:
                when = _arrives(due) if due else "held up"
                self._note((uid,), sent.sender, f"has a call on its way, sent at {sent.at:.3f}: {what}; {when}")
        self._ended = True

    # The API server

    def _on_change(self, change: Change) -> None:
        if change.kind is Kind.NODE:
            self._on_node(change)
        elif change.kind is Kind.RESOURCE_CLAIM:
            self._on_claim(change)
        elif change.kind is Kind.POD:
            assert self._server is not None
            before, pod = self._pods.get(change.key), self._server.pods.get(change.key)
            if pod is None:
                self._pods.pop(change.key, None)
                self._note((change.key,), SERVER, "gone")
                return
            self._pods[pod.uid] = pod
            self._names[pod.uid] = pod.name
            for text in _differences(before, pod):
                text_at_version = f"{text} (version {pod.metadata.resource_version})"
                self._note((pod.uid,), SERVER, text_at_version, minor=text.startswith(MINOR_CHANGES))
            if pod.spec.node_name and (before is None or not before.spec.node_name):
                where = pod.spec.node_name
                text = f"bound to {where} (version {pod.metadata.resource_version})"
                self._note((pod.uid, f"node {where}"), SERVER, text)

    def _on_node(self, change: Change) -> None:
        assert self._server is not None
        node = self._server.nodes.get(change.key)
        if node is None:
            self._note((change.key,), SERVER, f"node {change.key} is removed")
        elif change.key in self._nodes:
            capacity = ", ".join(f"{name} {amount}" for name, amount in node.status.allocatable.items())
            closed = ", unschedulable" if node.spec.unschedulable else ""
            self._note((change.key,), SERVER, f"node {change.key} is {change.type.lower()}: {capacity}{closed}")
        self._nodes.add(change.key)

    def _on_claim(self, change: Change) -> None:
        """Note it about the claim, its owner and the pods that it is reserved for, or was."""
        assert self._server is not None
        before = self._claims.pop(change.key, None)
        claim = self._server.objects.get((ObjectKind.RESOURCE_CLAIM, change.key))
        users = {each.uid for each in before.status.reserved_for} if before is not None else set()
        if not isinstance(claim, ResourceClaim):
            self._note((change.key, *sorted(users)), SERVER, f"claim {change.key} is gone")
            return
        self._claims[change.key] = claim
        users |= {each.uid for each in claim.status.reserved_for} | {claim.owner_uid or ""} - {""}
        self._note((claim.name, *sorted(users)), SERVER, _claim_now(claim))

    def _on_call(self, sent: Sent, moment: Moment, answer: Answer | None) -> None:
        uid, what = self._asked(sent)
        if not uid:
            return
        now = asyncio.get_running_loop().time()
        match moment:
            case Moment.SENT:
                self._on_their_way[sent] = None
                late = max(sent.due) > now + LATE
                by, text = sent.sender, f"calls: {what}" + (f"; {_arrives(sent.due)}" if late else "")
            case Moment.GIVEN_UP:
                by, text = sent.sender, f"gives up the call of {sent.at:.3f}: {what}"
            case Moment.LOST:
                by, text = SERVER, f"never gets {sent.sender}'s call of {sent.at:.3f}: {what}"
            case Moment.EXECUTED:
                assert answer is not None
                when = f", sent {now - sent.at:.3f} s ago" if now > sent.at + LATE else ""
                code, body = answer
                done = f"carries out ({code})" if code < 400 else f"refuses ({code})"
                why = "" if code < 400 else f": {msgspec.json.decode(body).get('message', '')}"
                by, text = SERVER, f"{done} {sent.sender}'s call: {what}{when}{why}"
        self._note((uid,), by, text, minor=what.startswith(SET_STATUS))
        if moment is not Moment.SENT and all(at <= now + AT_ONCE for at in sent.due):
            self._on_their_way.pop(sent, None)

    def _asked(self, sent: Sent) -> tuple[str, str]:
        """The pod's uid and a description of the call; no uid if it does not write a pod."""
        if sent.method == "GET":
            return "", ""
        if (claim := _CLAIM_PATH.match(sent.path)) is not None:
            part = claim[2] or ""
            return claim[1] or "", f"{sent.method} claim {claim[1] or ''}{part}{_claim_written(sent)}"
        match = _POD_PATH.match(sent.path)
        if match is None:
            return "", ""
        body = msgspec.json.decode(sent.body) if sent.body else {}
        uid = _uid_in(body)
        if not uid:
            assert self._server is not None
            pod = self._server.pod_named(match[1])
            uid = "" if pod is None else pod.uid
        return uid, _what(sent.method, match[2] or "", body)

    # Messages

    def _on_post(self, sender: str, subject: str, message: Message) -> None:
        match message:
            case Commit():
                self._on_commit(sender, message)
            case Committed():
                self._on_committed(sender, message)
            case BindingOrders():
                binder = subject.rpartition(".")[2]
                for order in message.orders:
                    version = f"version {order.version}" if order.version else "any version"
                    again = " again" if (binder, order.uid, order.attempt) in self._orders else ""
                    self._orders.add((binder, order.uid, order.attempt))
                    text = f"orders {binder}{again} to bind it to {order.node} ({_attempt(order.attempt)}, {version})"
                    self._note((order.uid,), sender, text, minor=bool(again))
            case BindingOutcomes():
                for outcome in message.outcomes:
                    self._on_outcome(sender, message, outcome)
            case Forgotten():
                for pod in message.pods:
                    self._note((pod.uid,), sender, f"forgets it, its place is free: {pod.reason}")
            case Withdraw():
                self._note((message.uid,), sender, f"withdraws {_attempt(message.attempt)}: {message.reason}")
            case Evict():
                victims = [self._label(victim.uid) for victim in message.victims]
                text = f"orders a binder to evict {', '.join(victims) or 'no pod'} for it on {message.node}"
                self._note((message.uid,), sender, f"{text} ({_attempt(message.attempt)})")
                for victim in message.victims:
                    what = "withdraw" if victim.attempt else "evict"
                    text = f"orders a binder to {what} it for {self._label(message.uid)} on {message.node}"
                    self._note((victim.uid,), sender, f"{text} ({_attempt(message.attempt)})")

    def _on_commit(self, sender: str, commit: Commit) -> None:
        self._commits[commit.epoch, commit.number] = commit
        if len(self._commits) > MAX_COMMITS:
            del self._commits[next(iter(self._commits))]
        for each in commit.decisions:
            self._note((each.uid,), sender, f"decides: {each.node} (round {commit.number} of term {commit.epoch})")
        for wish in commit.nominations:
            victims = ", ".join(self._label(victim.uid) for victim in wish.victims)
            self._note((wish.uid,), sender, f"nominates it to {wish.node}, victims: {victims or 'none'}")

    def _on_committed(self, sender: str, committed: Committed) -> None:
        commit = self._commits.pop((committed.epoch, committed.number), None)
        if commit is None:
            return
        refused = {conflict.uid: conflict.reason for conflict in committed.conflicts}
        for each in commit.decisions:
            what = f"assumes it on {each.node}" if each.uid not in refused else f"refuses {each.node}"
            why = f": {refused[each.uid]}" if refused.get(each.uid) else ""
            about = (each.uid, f"node {each.node}")
            self._note(about, sender, f"{what} (round {committed.number} of term {committed.epoch}){why}")
        for wish in commit.nominations:
            if wish.uid in refused:
                self._note((wish.uid,), sender, f"refuses the nomination to {wish.node}: {refused[wish.uid]}")

    def _on_outcome(self, sender: str, message: BindingOutcomes, outcome: BindingOutcome) -> None:
        """Note an outcome once; it is sent until it is acknowledged."""
        key = message.incarnation, outcome.uid, message.epoch, message.number
        if key not in self._outcomes:
            self._outcomes.add(key)
            self._note((outcome.uid,), sender, f"reports {_attempt(outcome.attempt)}: {_became(outcome)}")

    # Printing

    def about(self, wrong: str) -> list[str]:
        """The notes about what `wrong` names, aligned, at most MAX_LINES.

        If there are more: those about what its first line names, then without minor ones, then without the middle.
        """
        first = wrong.partition("\n")[0]
        found: list[Note] = []
        for text, minor in ((wrong, True), (first, True), (first, False)):
            found = [note for note in self._naming(text) if minor or not note.minor]
            if len(found) <= MAX_LINES:
                break
        rows = [(f"{note.at:.3f}", self._label(next(iter(note.about), "")), note.by, note.text) for note in found]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        lines = [
            f"{at:>{widths[0]}}  {about:<{widths[1]}}  {by:<{widths[2]}}  {_cut(text)}".rstrip()
            for at, about, by, text in rows
        ]
        return _shortened(lines)

    def _naming(self, wrong: str) -> list[Note]:
        """The notes about pods and nodes that `wrong` names; all notes if it names none."""
        named = {*_NAME.findall(wrong), *(f"node {name}" for name in _NODE.findall(wrong))}
        named |= {uid for uid, name in self._names.items() if name in named}
        found = [note for note in self._notes if not note.about or not named.isdisjoint(note.about)]
        return found if any(note.about for note in found) else list(self._notes)

    def _label(self, name: str) -> str:
        """The name of a pod, with its uid unless both have the same number."""
        known = self._names.get(name, name)
        return known if known[1:] == name[1:] else f"{known} ({name})"


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= MAX_LINES:
        return lines
    last = MAX_LINES - FIRST_LINES - 1
    left_out = len(lines) - FIRST_LINES - last
    return [*lines[:FIRST_LINES], f"... {left_out} lines left out ...", *lines[-last:]]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def _differences(before: Pod | None, pod: Pod) -> Iterator[str]:
    """How a pod changed, apart from being bound."""
    if before is None:
        yield f"created, priority {pod.priority}" if pod.priority else "created"
        return
    if pod.metadata.deletion_timestamp is not None and before.metadata.deletion_timestamp is None:
        yield "terminating"
    if pod.status.phase != before.status.phase:
        yield f"phase {pod.status.phase}"
    if pod.status.nominated_node_name != before.status.nominated_node_name and not pod.spec.node_name:
        yield f"nominated to {pod.status.nominated_node_name or 'no node'}"
    known = {condition.type: condition for condition in before.status.conditions}
    for condition in pod.status.conditions:
        if known.get(condition.type) == condition or (condition.type == "PodScheduled" and condition.status == "True"):
            continue
        if condition.type == BINDING_FENCED:
            yield f"touched, so calls that name version {before.metadata.resource_version} come too late"
        else:
            yield f"condition {condition.type}={condition.status}"
    if pod.metadata.labels != before.metadata.labels:
        yield "labels changed"


def _claim_now(claim: ResourceClaim) -> str:
    status, version = claim.status, claim.metadata.resource_version
    results = () if status.allocation is None else status.allocation.devices.results
    devices = ", ".join(f"{each.pool}/{each.device}" for each in results) or "no devices"
    users = ", ".join(each.name for each in status.reserved_for) or "no pod"
    ending = ", is being deleted" if claim.metadata.deletion_timestamp is not None else ""
    return f"claim {claim.name} (version {version}) has {devices}, is reserved for {users}{ending}"


def _arrives(due: Iterable[float]) -> str:
    return f"arrives at {' and at '.join(f'{at:.3f}' for at in due)}"


def _uid_in(body: Any) -> str:
    if isinstance(body, list):
        return str(next((step.get("value", "") for step in body if step.get("path") == "/metadata/uid"), ""))
    given = body.get("metadata") or body.get("preconditions") or {}
    return str(given.get("uid", ""))


def _claim_written(sent: Sent) -> str:
    body = msgspec.json.decode(sent.body) if sent.body else {}
    status, version = body.get("status") or {}, body.get("metadata", {}).get("resourceVersion", "")
    results = status.get("allocation", {}).get("devices", {}).get("results", ())
    devices = ", ".join(f"{each['pool']}/{each['device']}" for each in results)
    users = ", ".join(each["name"] for each in status.get("reservedFor", ()))
    return f" of version {version}: {devices or 'no devices'} for {users or 'no pod'}"


def _what(method: str, part: str, body: Any) -> str:
    if part == "/binding":
        version = body["metadata"].get("resourceVersion", "")
        return f"bind it to {body['target']['name']} ({f'if at version {version}' if version else 'at any version'})"
    if method == "DELETE":
        return "delete it"
    if isinstance(body, list):
        return "take its nomination back"
    status = body.get("status", {})
    said = [f"{each['type']}={each.get('status', '')}" for each in status.get("conditions", ())]
    if "nominatedNodeName" in status:
        said.append(f"nominated to {status['nominatedNodeName'] or 'no node'}")
    is_touch = any(each["type"] == BINDING_FENCED for each in status.get("conditions", ()))
    return f"{'touch it' if is_touch else SET_STATUS} ({', '.join(said)})"


def _attempt(number: int) -> str:
    term, attempt = number >> EPOCH_SHIFT, number & ((1 << EPOCH_SHIFT) - 1)
    return f"attempt {attempt} of term {term}"


def _became(outcome: BindingOutcome) -> str:
    if outcome.bound:
        return "bound"
    if outcome.waits:
        return "waits"
    if outcome.found:
        return f"not bound, and at version {outcome.found} now"
    flags = {"gone": outcome.gone, "fenced": outcome.fenced, "handed back": outcome.handed_back}
    said = ", ".join(word for word, is_so in flags.items() if is_so)
    return f"failed ({said}): {outcome.reason}" if said else f"failed: {outcome.reason}"
