"""Replays scripts of queue events: golden cases with the place of each pod in kube-scheduler v1.36's queue.

The queue's core gets the same events as from its service, on the script's clock.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flotilla.events import Resource
from services.queue.core import QueueCore
from services.queue.events import Event, PodBound, PodGone, PodPending, SendBatch, Tick
from services.queue.scheduling.cluster_event import ClusterChange, node_events, object_events, pod_events
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from services.queue.scheduling.scheduling_queue import Timeouts
from shared.framework.clusterevents import NAMES, ClusterEvent
from shared.framework.loading import load_frameworks
from shared.messages.queue import Activate, Forgotten, ForgottenPod, Outcome, Outcomes, Take, Verdict
from shared.model.objects import ObjectKind, Pod, key_of, pod_from
from testing.inprocess.batches import pods_in
from testing.inprocess.cases import ACTIONS, Difference, cluster_objects, decoded_object, kind_in

Case = Mapping[str, Any]
Op = Mapping[str, Any]
State = dict[str, Any]

EPOCH = 1
NEVER = 1e9
"""No time-outs: popped pods return when the script says so."""


def is_case(case: object) -> bool:
    match case:
        case {"name": str(), "config": dict(), "objects": dict(), "ops": list(ops), "expected": list(expected)}:
            return len(ops) == len(expected)
    return False


def differences(case: Case) -> Iterator[Difference]:
    return Script(case).differences()


class Script:
    def __init__(self, case: Case) -> None:
        config = case["config"]
        self._case = case
        self._objects = cluster_objects(case["objects"])
        self.core = QueueCore(
            load_frameworks(None),
            self._objects,
            backoff=BackoffPolicy(initial=config["podInitialBackoffSeconds"], maximum=config["podMaxBackoffSeconds"]),
            timeouts=Timeouts(unschedulable=config["podMaxInUnschedulablePodsSeconds"], in_flight=NEVER),
        )
        self._now = 0.0
        self._numbers = 0
        self._pods: dict[str, Pod] = {}
        """By name: the newest version of each pending pod."""
        self._taken: dict[str, str] = {}
        """By name: the uids of pods in flight."""
        self._assumed: set[str] = set()

    def differences(self) -> Iterator[Difference]:
        """The differences of the first step that has any; later steps would differ because of it."""
        for step, (op, expected) in enumerate(zip(self._case["ops"], self._case["expected"], strict=True)):
            got = self.run(op)
            found = [
                Difference(self._case["name"], _subject(op), f"step {step}, {op['op']}: {what}", wanted, had)
                for what in sorted(expected.keys() | got.keys())
                if (wanted := expected.get(what)) != (had := got.get(what))
            ]
            if found:
                yield from found
                return

    def run(self, op: Op) -> State:
        """Run a step; returns the state after it, in the form of the cases."""
        self._pass_time(op["at"] / 1000)
        return {**self._carry_out(op), **self._state()}

    def _carry_out(self, op: Op) -> State:
        match op["op"]:
            case "add" | "update":
                pod = pod_from(op["pod"])
                events = pod_events(self._pods[pod.key], pod) if op["op"] == "update" else None
                if pod.spec.node_name and events is not None:
                    del self._pods[pod.key]
                    for event in events:
                        self._handle(ClusterChange(event, None, pod))
                    self._handle(PodBound(pod.uid))
                else:
                    self._pods[pod.key] = pod
                    self._handle(PodPending(pod, self._now))
                return {} if events is None else {"events": _shown(events)}
            case "delete":
                self._handle(PodGone(self._pods.pop(op["pod"]).uid))
            case "pop":
                return self._pop()
            case "fail":
                self._fail(op)
            case "assume":
                uid = self._taken[op["pod"]]
                self._assumed.add(uid)
                self._report(Outcome(uid, Verdict.DECIDED, node=op["node"]))
            case "done":  # an assumed pod remains so until it is seen bound; any other is finished
                uid = self._taken.pop(op["pod"])
                if uid not in self._assumed:
                    self._handle(PodBound(uid))
                self._assumed.discard(uid)
            case "activate":
                self._handle(Activate([self._pods[name].uid for name in op["pods"] if name in self._pods]))
            case "change":
                before, now, events = self._changed(op["kind"], op["old"], op["new"])
                for event in events:
                    self._handle(ClusterChange(event, before, now))
                return {"events": _shown(events)}
            case "event":
                event = ClusterEvent(Resource(op["event"]["resource"]), ACTIONS[op["event"]["action"]])
                kind = kind_in(event)
                self._handle(ClusterChange(event, decoded_object(kind, op["old"]), decoded_object(kind, op["new"])))
            case "tick":
                pass
            case unknown:
                raise KeyError(unknown)
        return {}

    def _pop(self) -> State:
        if not any(True for place in (PodState.ACTIVE, PodState.BACKOFF) for _ in self.core.pods_in(place)):
            return {"popped": None}
        self._numbers += 1
        (batch,) = (
            effect.batch for effect in self._handle(Take(EPOCH, self._numbers, 1)) if isinstance(effect, SendBatch)
        )
        (queued,), (pod,) = batch.pods, pods_in(batch)
        self._taken[pod.key] = pod.uid
        return {"popped": pod.key, "attempts": queued.attempt}

    def _fail(self, op: Op) -> None:
        uid = self._taken.pop(op["pod"])
        plugins, pending = tuple(op.get("unschedulable", ())), tuple(op.get("pending", ()))
        if uid in self._assumed:
            self._assumed.discard(uid)
            if self.core.pod(uid) is not None:
                failed = ForgottenPod(uid, "it could not be bound", next(iter(plugins), ""), bool(plugins))
                self._handle(Forgotten(EPOCH, [failed]))
        else:
            verdict = Verdict.UNSCHEDULABLE if plugins or pending else Verdict.FAILED
            self._report(Outcome(uid, verdict, plugins=plugins, pending=pending, nominated=op.get("nominate")))

    def _changed(self, kind: str, old: Any, new: Any) -> tuple[Any, Any, list[ClusterEvent]]:
        before, now = decoded_object(kind, old), decoded_object(kind, new)
        if kind == "Node":
            return before, now, node_events(before, now)
        if kind == "Pod":
            return before, now, pod_events(before, now)
        object_kind = ObjectKind(kind.lower())
        if now is not None:
            self._objects.upsert(now)
        else:
            self._objects.remove(object_kind, key_of(before))
        return before, now, object_events(object_kind, before, now)

    def _pass_time(self, until: float) -> None:
        while (due := self.core.next_deadline()) is not None and due <= until:
            self._now = max(self._now, due)
            self._handle(Tick())
        self._now = until

    def _report(self, outcome: Outcome) -> None:
        self._numbers += 1
        self._handle(Outcomes(EPOCH, self._numbers, [outcome]))

    def _handle(self, event: Event) -> list[Any]:
        effects = self.core.handle(event, self._now)
        self.core.validate()
        return effects

    def _state(self) -> State:
        places = {
            place: list(self.core.pods_in(place)) for place in PodState if place not in (PodState.NEW, PodState.DONE)
        }
        resting = (*places[PodState.BACKOFF], *places[PodState.ERROR_BACKOFF])
        state: State = {
            "active": _names(places[PodState.ACTIVE]),
            "backoff": _names(places[PodState.BACKOFF]),
            "error_backoff": _names(sorted(places[PodState.ERROR_BACKOFF], key=lambda e: (e.backoff_until, e.pod.key))),
            "unschedulable": sorted(_names(places[PodState.UNSCHEDULABLE])),
            "gated": sorted(_names(places[PodState.GATED])),
            "inflight": sorted(self._taken),
        }
        if resting:
            state["until"] = {entry.pod.key: entry.backoff_until * 1000 for entry in resting}
        names = {entry.uid: entry.pod.key for entries in places.values() for entry in entries}
        if nominated := self.core.nominated():
            state["nominated"] = {node: sorted(names[uid] for uid in uids) for node, uids in nominated.items()}
        return state


def _subject(op: Op) -> str:
    pod = op.get("pod", "-")
    return pod if isinstance(pod, str) else str(pod["metadata"]["name"])


def _shown(events: Iterable[ClusterEvent]) -> list[dict[str, str]]:
    return [{"resource": event.resource, "action": NAMES[event.action]} for event in events]


def _names(entries: Iterable[QueuedPodInfo]) -> list[str]:
    return [entry.pod.key for entry in entries]
