"""The deciding cores of a pipeline in one process on virtual time: queue, cycle, snapshot and one worker.

They start with a state, and hear of changes as from the watch and binders: decided pods are bound, and victims deleted,
once all pods are decided that can be. Messages take no time and are never lost, so the same state and the same changes
give the same decisions. Nothing outside is called but extenders, if they are to be asked.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from flotilla.events import Action, Resource
from services.cycle import events as cycle
from services.cycle.core import CycleCore
from services.cycle.extenders import AskAboutVictims, AskExtenders, Extenders, ExtendersAnswered, VictimsAnswered
from services.cycle.queue_client import MIN_PODS, outcome_of
from services.queue import events as queue
from services.queue.core import QueueCore
from services.queue.scheduling.cluster_event import ClusterChange, freed_room, node_events, object_events
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from services.snapshot import events as snapshot
from services.snapshot.commit_checks import ProfileFilters
from services.snapshot.core import SnapshotCore
from services.worker import events as worker
from services.worker.core import WorkerCore
from shared.cluster.objects import ClusterObjects
from shared.config.structs import ExtenderConfig, KubeSchedulerConfig
from shared.devices.pod_claims import claim_names
from shared.errors import InvariantBroken
from shared.framework.clusterevents import ClusterEvent
from shared.framework.loading import load_frameworks
from shared.messages.binding import Evict, Evicted, Notice
from shared.messages.evaluation import Ties
from shared.messages.queue import Absorbed, Forgotten, ForgottenPod, Outcome, Outcomes, Take, Verdict
from shared.messages.state import Delta, Loads, NeedDeltas, ObjectRemoved, ObjectUpserted, OthersChanged, State
from shared.model.devices import ResourceClaim
from shared.model.kinds import GROUP_KINDS, UNPUBLISHED_KINDS
from shared.model.load import PodLoad
from shared.model.objects import (
    ClusterObject,
    Node,
    ObjectKind,
    PersistentVolumeClaim,
    Pod,
    key_of,
    kind_of,
    object_from_msgpack,
    pod_from_msgpack,
)
from tools.live_state import LiveGroup
from tools.whatif.claims import owner_of, with_user, without_user
from tools.whatif.extending import Converse, ExtenderAsker
from tools.whatif.loads import pod_of_load
from tools.whatif.pods import Eviction, Rejected

CALLED = 0.02
"""Seconds of virtual time until what a binder calls shows: bindings, deletions of victims, nominations. All pods that
can be are decided before, and the members of a gang hear of victims and nominations together."""
ATTEMPT = 1e-6
"""Seconds of virtual time that an attempt takes: of two that fail, the earlier one is queued first."""
GATHERED = 0.01
"""Seconds of virtual time in which changes are gathered and then shown together, as a watcher does."""
GRACE = 1.0
"""Seconds of virtual time until a victim, or a pod that terminates already, has left its node."""
HORIZON = 120.0
"""Seconds of virtual time in which everything settles."""
LONGEST_PAUSE = 60.0
"""Seconds of virtual time that are waited at most, before a question, for back-offs to end."""
POD_ADDED = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
WORKER = "worker"


class Cores:
    """`outcomes`: the last one of each pod that was decided. `evicted`: victims with their preemptor, in order."""

    def __init__(
        self,
        state: State,
        config: KubeSchedulerConfig,
        *,
        ties: Ties | None = None,
        round_size: int = 1,
        at: float = 0.0,
        check: Callable[[], None] = lambda: None,
        extenders: Sequence[ExtenderConfig] = (),
        converse: Converse | None = None,
    ) -> None:
        """`at`: the Unix time. `check` is called now and then while pods are decided; it raises to end a run.

        `extenders`: those that are asked, by `converse`.
        """
        self.frameworks = load_frameworks(config)
        self.outcomes: dict[str, cycle.Outcome] = {}
        self.evicted: list[Eviction] = []
        self.victims: set[str] = set()
        self.now = self._horizon = 0.0
        self._most = max(2 * round_size, MIN_PODS)
        self._longest_backoff = float(config.pod_max_backoff_seconds)
        self._check = check
        self._mail: deque[Callable[[], None]] = deque()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._taken = self._reported = self._versions = 0
        self._takes = False
        self._claims: dict[str, dict[tuple[ObjectKind, str], None]] = {}
        """By uid of a pod: the claims that are reserved for it, or made for it."""
        self.objects = ClusterObjects()
        """As the queue sees them."""
        self.snapshot = SnapshotCore(1, filters=ProfileFilters.of(config))
        self.queue = QueueCore(
            self.frameworks,
            self.objects,
            backoff=BackoffPolicy(initial=config.pod_initial_backoff_seconds, maximum=config.pod_max_backoff_seconds),
        )
        self._asker = None
        if converse is not None:
            self._asker = ExtenderAsker(extenders, converse, self.snapshot.cluster.nodes.reported)
        self.cycle = CycleCore(
            1,
            self.frameworks,
            round_size=round_size,
            ties=ties,
            extenders=Extenders(extenders if self._asker is not None else ()),
        )
        self.worker = WorkerCore(WORKER, frozenset({0}), 1, self.frameworks)
        self._fill(state)
        self.worker.handle(self.snapshot.state(), self.now)
        self.worker.handle(msgspec.structs.replace(self.snapshot.heartbeat(), at=at), self.now)
        self._to_cycle(cycle.Workers({WORKER: frozenset({0})}, 1))
        self._deliver()

    def _fill(self, state: State) -> None:
        cluster = self.snapshot.cluster
        events: list[snapshot.WatchEvent] = [snapshot.NodeSeen(each.node) for each in state.nodes]
        events += map(snapshot.ObjectSeen, state.objects)
        self.snapshot.handle(snapshot.WatchEvents(events), self.now)
        for obj in state.objects:
            if kind_of(obj) not in GROUP_KINDS:  # the queue learns of groups by `add_group`
                self.objects.upsert(obj)
            self._note_users(obj)
        for each in state.nodes:
            for uid, pod in each.pods.items():
                load = state.loads[pod.load]
                cluster.pods.put(uid, each.node.name, load, pod.key, pod.started, assumed=False)
                self.queue.claims_on_nodes.put(uid, {f"{load.namespace}/{claim}" for claim in load.claims})
                if load.terminating:
                    self._at(GRACE, partial(self.remove_pod, uid))
        for nominated in state.nominations:
            load = state.loads[nominated.load]
            cluster.nominator.observe(nominated.uid, nominated.node, load, nominated.key, self.now)

    # What changes

    def load_of(self, uid: str) -> PodLoad | None:
        placement = self.snapshot.cluster.pods.get(uid)
        return None if placement is None else placement.load

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            before = self.snapshot.cluster.nodes.reported(node.name)
            self._watch(snapshot.NodeSeen(node))
            self._changed(*(ClusterChange(event, before, node) for event in node_events(before, node)))

    def remove_node(self, name: str) -> None:
        """Its pods are gone as well."""
        self.remove_pods(list(self.snapshot.cluster.pods.on_node(name)))
        before = self.snapshot.cluster.nodes.reported(name)
        self._watch(snapshot.NodeGone(name))
        self._changed(*(ClusterChange(event, before, None) for event in node_events(before, None)))

    def add_group(self, group: LiveGroup) -> None:
        """A pod group, with its members that are on nodes already."""
        for body in (*group.above, group.body):
            if body:
                self._show(object_from_msgpack(body))
        for uid in group.placed:
            placement = self.snapshot.cluster.pods.get(uid)
            if placement is not None:
                self._changed(ClusterChange(POD_ADDED, None, pod_of_load(uid, placement, group.ref)))

    def add_objects(self, objects: Iterable[ClusterObject]) -> None:
        for obj in objects:
            if kind_of(obj) in UNPUBLISHED_KINDS:
                self._show(obj)
            if kind_of(obj) is not ObjectKind.COSCHEDULING_POD_GROUP:
                self._watch(snapshot.ObjectSeen(obj))

    def _show(self, obj: ClusterObject) -> None:
        """To the queue."""
        kind = kind_of(obj)
        before: ClusterObject | None = self.objects.of(kind).get(key_of(obj))
        self._note_users(obj)
        if self.objects.upsert(obj):
            self._changed(*(ClusterChange(event, before, obj) for event in object_events(kind, before, obj)))

    def _show_removed(self, kind: ObjectKind, key: str) -> None:
        before: ClusterObject | None = self.objects.of(kind).get(key)
        if self.objects.remove(kind, key):
            self._changed(*(ClusterChange(event, before, None) for event in object_events(kind, before, None)))

    def _note_users(self, obj: ClusterObject) -> None:
        """Remembers which claims a pod leaves behind."""
        if isinstance(obj, ResourceClaim | PersistentVolumeClaim):
            users = [user.uid for user in obj.status.reserved_for] if isinstance(obj, ResourceClaim) else []
            for uid in (owner_of(obj), *users):
                if uid:
                    self._claims.setdefault(uid, {})[kind_of(obj), key_of(obj)] = None

    def place(self, pods: Iterable[Pod]) -> None:
        """Pods that are on nodes already."""
        for pod in pods:
            self._watch(snapshot.PodSeen(pod))
            self._changed(ClusterChange(POD_ADDED, None, pod))

    def remove_pods(self, uids: Iterable[str], *, with_claims: bool = True) -> None:
        for uid in uids:
            self.remove_pod(uid, with_claims=with_claims)

    def remove_pod(self, uid: str, *, with_claims: bool = True) -> None:
        """A pod has left its node, or the queue; what it claimed is free, and the claims that were made for it go."""
        placement = self.snapshot.cluster.pods.get(uid)
        if placement is not None:
            self._watch(snapshot.PodDeleted(uid))
            self._changed(freed_room(pod_of_load(uid, placement)))
        if self.queue.pod(uid) is not None:
            self._watch(snapshot.PodDeleted(uid))
            self._tell_queue(queue.WatchEvents([queue.PodGone(uid)]))
        self.outcomes.pop(uid, None)
        if with_claims:
            self._release(uid)

    def _release(self, uid: str) -> None:
        for kind, key in list(self._claims.pop(uid, ())):
            claim = self.objects.of(kind).get(key)
            if isinstance(claim, ResourceClaim) and any(user.uid == uid for user in claim.status.reserved_for):
                self._watch(snapshot.ObjectSeen(without_user(claim, uid)))  # also before it goes, which wakes nobody
            if claim is not None and owner_of(claim) == uid:
                self._watch(snapshot.ObjectGone(kind, key))

    def submit(self, pods: Iterable[tuple[Pod, float]]) -> None:
        """Pods to schedule, each with the time since when it is queued; the queue decides their order."""
        pending: list[queue.WatchEvent] = []
        for pod, since in pods:
            if pod.status.nominated_node_name:
                self._watch(snapshot.PodSeen(pod))
            pending.append(queue.PodPending(pod, since))
        self._tell_queue(queue.WatchEvents(pending))

    def submit_rejected(self, pods: Sequence[Rejected]) -> None:
        """Pods that were tried before, each with the plugins that rejected it: only what may help them moves them.

        To be called once, before anything else. Their back-offs are over afterwards.
        """
        if not pods:
            return
        rejected = {each.pod.uid: each for each in pods}
        self.submit((each.pod, each.since) for each in pods)
        self._taken += 1
        for effect in self.queue.handle(Take(self.cycle.epoch, self._taken, len(pods)), self.now):
            if isinstance(effect, queue.SendBatch):
                uids = [pod_from_msgpack(each.pod).uid for each in effect.batch.pods]
                outcomes = [
                    Outcome(uid, Verdict.UNSCHEDULABLE, message=rejected[uid].message, plugins=rejected[uid].plugins)
                    for uid in uids
                ]
                self._reported += 1
                self._tell_queue(Outcomes(self.cycle.epoch, self._reported, outcomes))
        self.now += min(self._longest_backoff + 1.0, LONGEST_PAUSE)

    # What becomes of pods

    def node_of(self, uid: str) -> str:
        """Empty while it is on none."""
        placement = self.snapshot.cluster.pods.get(uid)
        return "" if placement is None else placement.node

    def nominated_node(self, uid: str) -> str:
        nomination = self.snapshot.cluster.nominator.get(uid)
        return "" if nomination is None else nomination.node

    def queued(self, uid: str) -> QueuedPodInfo | None:
        """None if the queue does not have it: it was decided, or no profile is for it."""
        return self.queue.pod(uid)

    def settle(self) -> None:
        """Decides until nothing is left to be decided, and nothing leaves any more."""
        self._horizon = self.now + HORIZON
        while True:
            self._deliver()
            if self._take():
                continue
            due = self._next_time()
            if due is None or due > self._horizon:
                return
            self.now = max(self.now, due + GATHERED)
            while self._later and self._later[0][0] <= self.now:
                self._mail.append(heapq.heappop(self._later)[2])
            self._to_cycle(cycle.Tick())
            self._to_worker(worker.Tick())
            self._carry_out_queue(self.queue.handle(queue.Tick(), self.now))

    def _next_time(self) -> float | None:
        """Pods that failed by an error are not waited for: they would fail for ever."""
        times = [self.cycle.next_deadline(), self.worker.next_deadline()]
        if self._later:
            times.append(self._later[0][0])
        return min((at for at in times if at is not None), default=None)

    def _take(self) -> bool:
        """Asks the queue for pods, if it has any that can be tried."""
        counts = self.queue.counts()
        if self._takes or not (counts[PodState.ACTIVE] or counts[PodState.BACKOFF]):
            return False
        self._check()
        self._takes = True
        self._taken += 1
        self._carry_out_queue(self.queue.handle(Take(self.cycle.epoch, self._taken, self._most), self.now))
        return bool(self._mail)

    # Messages

    def _deliver(self) -> None:
        while self._mail:
            self._mail.popleft()()

    def _at(self, delay: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._later, (self.now + delay, next(self._order), happen))

    def _post(self, deliver: Callable[[], None]) -> None:
        self._mail.append(deliver)

    def _watch(self, event: snapshot.Event) -> None:
        self._carry_out_snapshot(self.snapshot.handle(event, self.now))
        self._deliver()

    def _changed(self, *changes: ClusterChange) -> None:
        if changes:
            self._tell_queue(queue.WatchEvents(list(changes)))

    def _tell_queue(self, event: queue.Event) -> None:
        """First, which state the snapshot has applied."""
        for each in (Absorbed(self.snapshot.epoch, self.snapshot.seq, 0, 0), event):
            self._carry_out_queue(self.queue.handle(each, self.now))

    def _to_cycle(self, event: cycle.Event) -> None:
        self._carry_out_cycle(self.cycle.handle(event, self.now))

    def _to_worker(self, event: worker.Event) -> None:
        for effect in self.worker.handle(event, self.now):
            if isinstance(effect, worker.Answer):
                self._post(partial(self._to_cycle, effect.message))
            elif isinstance(effect, worker.Reload):
                self._post(partial(self._to_worker, self.snapshot.state()))

    def _carry_out_queue(self, effects: Iterable[queue.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, queue.SendBatch):
                self._takes = False
                if effect.batch.pods:
                    self._post(partial(self._to_cycle, effect.batch))
            elif isinstance(effect, Notice) and effect.nominated is not None:
                self._at(CALLED, partial(self._show_nomination, effect.uid, effect.nominated))

    def _show_nomination(self, uid: str, node: str) -> None:
        """A binder writes the nomination into the pod's status, and the watch shows it."""
        info = self.queue.pod(uid)
        if info is None or info.pod.status.nominated_node_name == node:
            return
        self._versions += 1
        metadata = msgspec.structs.replace(info.pod.metadata, resource_version=f"{self._versions}")
        status = msgspec.structs.replace(info.pod.status, nominated_node_name=node)
        pod = msgspec.structs.replace(info.pod, metadata=metadata, status=status)
        self._carry_out_snapshot(self.snapshot.handle(snapshot.PodSeen(pod), self.now))
        self._tell_queue(queue.WatchEvents([queue.PodPending(pod, self.now)]))

    def _carry_out_cycle(self, effects: Sequence[cycle.Effect]) -> None:
        outcomes: list[cycle.Outcome] = []
        for effect in effects:
            match effect:
                case cycle.Ask(message=message):
                    self._post(partial(self._to_worker, message))
                case cycle.SendCommit(message=commit):
                    self._post(partial(self._watch_commit, commit))
                case cycle.SendDeltas():
                    self._post(partial(self._watch_commit, NeedDeltas(self.cycle.epoch)))
                case AskExtenders() | AskAboutVictims():
                    self._post(partial(self._ask_extenders, effect))
                case cycle.WorkerFault(reason=reason):
                    raise InvariantBroken(f"the worker is blamed: {reason}")
                case cycle.EndTerm(why=why):
                    raise InvariantBroken(why)
                case cycle.Decided() | cycle.Unschedulable() | cycle.Failed() | cycle.Superseded():
                    outcomes.append(effect)
                case _:
                    pass  # nothing is recorded or explained
        self._on_outcomes(outcomes)

    def _ask_extenders(self, asked: AskExtenders | AskAboutVictims) -> None:
        self._check()
        if self._asker is None:
            raise InvariantBroken("the cycle called extenders, but none is configured")
        if isinstance(asked, AskExtenders):
            judgements = {each.class_id: self._asker.judge(each) for each in asked.questions}
            self._to_cycle(ExtendersAnswered(asked.round, asked.ask, judgements))
        else:
            left = {each.class_id: self._asker.left(each) for each in asked.questions}
            self._to_cycle(VictimsAnswered(asked.search, left))

    def _watch_commit(self, commit: snapshot.Event) -> None:
        """The watch shows what is decided about objects once a binder has written it."""
        self._carry_out_snapshot(self.snapshot.handle(commit, self.now), shown_in=CALLED)

    def _carry_out_snapshot(self, effects: Iterable[snapshot.Effect], shown_in: float = 0.0) -> None:
        for effect in effects:
            match effect:
                case Delta() as delta:
                    self._post(partial(self._to_worker, delta))
                    for change in delta.changes:
                        if isinstance(change, ObjectUpserted) and shown_in:
                            self._at(shown_in, partial(self._show, change.object))
                        elif isinstance(change, ObjectUpserted):
                            self._show(change.object)
                        elif isinstance(change, ObjectRemoved):
                            self._show_removed(change.kind, change.key)
                case snapshot.Reply(message=committed):
                    self._post(partial(self._to_cycle, committed))
                case OthersChanged():
                    self._post(partial(self._to_cycle, effect))
                case Evict() as evict:
                    self._evict(evict)
                case snapshot.WorkerFault(reason=reason):
                    raise InvariantBroken(f"the worker is blamed: {reason}")
                case ForgottenPod() as forgotten:
                    self._tell_queue(Forgotten(self.snapshot.epoch, [forgotten]))
                case _:
                    pass  # nothing is persisted, and pods are bound in _on_outcomes

    def _on_outcomes(self, outcomes: Iterable[cycle.Outcome]) -> None:
        """Reports together what was decided together, as the cycle does: a gang is never back in part."""
        known = [(each, info) for each in outcomes if (info := self.queue.pod(each.uid)) is not None]
        if not known:
            return
        self.outcomes |= {each.uid: each for each, _ in known}
        self._reported += 1
        reported = [outcome_of(each, each.pod is not None and bool(each.pod.nominated_node)) for each, _ in known]
        self._tell_queue(Outcomes(self.cycle.epoch, self._reported, reported))
        self.now += ATTEMPT
        shown: list[queue.WatchEvent] = []
        for each, info in known:
            if isinstance(each, cycle.Decided):
                spec = msgspec.structs.replace(info.pod.spec, node_name=each.node)
                bound = msgspec.structs.replace(info.pod, spec=spec)
                shown += [queue.PodBound(each.uid), ClusterChange(POD_ADDED, None, bound)]
                if info.pod.spec.resource_claims:
                    self._at(CALLED, partial(self._reserve, info.pod))
        if shown:
            self._at(CALLED, partial(self._tell_queue, queue.WatchEvents(shown)))

    def _reserve(self, pod: Pod) -> None:
        """A binder writes what devices the pod's claims have got: until then, other pods that share one wait."""
        for name in claim_names(pod.namespace, pod.spec.resource_claims, pod.status.resource_claim_statuses):
            claim = self.snapshot.cluster.objects.get(ObjectKind.RESOURCE_CLAIM, name.key)
            if isinstance(claim, ResourceClaim):
                self._watch(snapshot.ObjectSeen(with_user(claim, pod)))

    def _evict(self, evict: Evict) -> None:
        for victim in evict.victims:
            if victim.uid in self.victims:
                continue  # it is on its way out for another pod
            placement = self.snapshot.cluster.pods.get(victim.uid)
            priority = 0 if placement is None else placement.load.priority
            self.evicted.append(Eviction(evict.uid, victim, evict.node, priority))
            self.victims.add(victim.uid)
            self._at(CALLED, partial(self._terminate, victim.uid))
            self._at(GRACE, partial(self.remove_pod, victim.uid))
        self._at(CALLED, partial(self._tell_queue, Evicted(evict.uid, evict.attempt)))

    def _terminate(self, uid: str) -> None:
        """The watch shows a victim as terminating, as soon as a binder has deleted it."""
        cluster, loads = self.snapshot.cluster, Loads()
        placement = cluster.pods.get(uid)
        if placement is not None:
            load = msgspec.structs.replace(placement.load, terminating=True, preempted=True)
            placement = cluster.pods.set_load(uid, cluster.victims.observe(uid, load))
            self._carry_out_snapshot(cluster.publish([placement.placed(uid, loads)], loads.items))
