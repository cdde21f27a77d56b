"""Replays a recording: everything that was decided is decided again, and compared.

entries --states, deltas--> History
        --rounds, searches--> wait until the states that they were judged on are there --> decided again, compared
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from shared.config.document import ConfigSource
from shared.config.feature_gates import FeatureGates
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.recording import CommitAnswered, DeciderShown, PodDecided, PodsShown, RoundDecided, SearchDecided
from shared.messages.state import Delta, Heartbeat, State
from shared.model.objects import DEFAULT_NAMESPACE
from tools.recording.file import Entry, Gap, Header
from tools.replay.decisions import Decisions, Incomparable, latest
from tools.replay.states import History

MAX_WAITING = 1 << 12
"""Decisions that wait for a state; it is missing if more arrive meanwhile."""
MAX_DIFFERENCES = 1000
"""That are kept; all are counted."""

Decided = RoundDecided | SearchDecided


@dataclass(frozen=True, slots=True)
class Difference:
    """`what`: the round or search. `recorded` and `replayed`: what was decided about the pod.

    `victims`: names by uid.
    """

    what: str
    pod: str
    recorded: PodDecided
    replayed: PodDecided
    victims: Mapping[str, str]

    def text(self) -> str:
        recorded, replayed = (said(each, self.victims) for each in (self.recorded, self.replayed))
        return f"{self.what}: pod {self.pod}: recorded {recorded}, replayed {replayed}"


@dataclass(frozen=True, slots=True)
class Stopped:
    """A pod's decision. `scores`: of feasible nodes, by plugin; `rejected`: the number of other nodes, by reason;
    `victims`: names by uid.
    """

    what: str
    pod: str
    seq: int
    recorded: PodDecided
    replayed: PodDecided
    scores: Mapping[str, Mapping[str, int]]
    rejected: Mapping[str, int]
    victims: Mapping[str, str]


@dataclass(slots=True)
class Comparison:
    """`incomparable`: rounds and searches that were not compared, by reason. `verdicts`: of the pods compared."""

    rounds: int = 0
    searches: int = 0
    gangs: int = 0
    decisions: int = 0
    different: int = 0
    mixed: int = 0
    """Rounds and searches that workers judged on different states."""
    verdicts: Counter[str] = field(default_factory=Counter)
    pods: set[str] = field(default_factory=set)
    differences: list[Difference] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    """Of all differences."""
    incomparable: Counter[str] = field(default_factory=Counter)
    gaps: list[str] = field(default_factory=list)
    conflicts: int = 0
    """Decisions that the snapshot refused."""


class Replay:
    """Takes the entries of a recording one by one."""

    def __init__(self, shards: int | None = None, until: str = "") -> None:
        """`shards`: the number of equal parts into which nodes are divided; by default, as when it was recorded.

        `until`: stops where this pod, by uid or name, is decided.
        """
        self.stopped: Stopped | None = None
        self.found = Comparison()
        self.header: Header | None = None
        self.decisions: Decisions | None = None
        self.history: History | None = None
        self._shards = shards
        self._until = {until, f"{DEFAULT_NAMESPACE}/{until}"} if until else set[str]()
        self._decider: DeciderShown | None = None
        self._waiting: deque[Decided] = deque()

    def take_all(self, entries: Iterable[Entry]) -> Comparison:
        for entry in entries:
            self.take(entry)
            if self.stopped is not None:
                return self.found
        self.finish()
        return self.found

    def take(self, entry: Entry) -> None:
        match entry:
            case Header():
                self.header = entry
            case DeciderShown():
                self._on_decider(entry)
            case State():
                self._on_state(entry)
            case Delta():
                self._on_delta(entry)
            case Heartbeat():
                if self.history is not None:
                    self.history.time = entry.at or self.history.time
            case Gap():
                self.found.gaps.append(entry.lost)
            case PodsShown():
                if self.decisions is not None:
                    self.decisions.show(entry.pods)
            case CommitAnswered():
                self.found.conflicts += len(entry.conflicts)
            case RoundDecided() | SearchDecided():
                self._waiting.append(entry)
                if len(self._waiting) > MAX_WAITING:
                    self._decide(self._waiting.popleft())
        self._decide_ready()

    def finish(self) -> None:
        """There are no more entries."""
        while self._waiting:
            self._decide(self._waiting.popleft())

    # Inside

    def _on_decider(self, decider: DeciderShown) -> None:
        """Another cycle decides from now on, or the same one."""
        self.finish()
        before, self._decider = self._decider, decider
        if before is None or self.decisions is None or _how(before) != _how(decider):
            self.decisions = Decisions(frameworks_of(decider), decider.ties, decider.round_size, self._shards)

    def _on_state(self, state: State) -> None:
        self.finish()
        self.history = History(state)
        if self.decisions is not None:
            self.decisions.workers.forget()

    def _on_delta(self, delta: Delta) -> None:
        if self.history is not None and delta.seq == self.history.newest + 1:
            self.history.take(delta)

    def _decide_ready(self) -> None:
        newest = 0 if self.history is None else self.history.newest
        while self._waiting and max(latest(self._waiting[0].classes), default=0) <= newest:
            self._decide(self._waiting.popleft())

    def _decide(self, record: Decided) -> None:
        if self.history is None or self.decisions is None:
            self.found.incomparable["it comes before the first state"] += 1
            return
        try:
            if not self._until:
                self._compare(record, self.decisions, self.history)
            elif self.stopped is None:
                self._stop(record, self.decisions, self.history)
        except Incomparable as why:
            self.found.incomparable[str(why)] += 1

    def _compare(self, record: Decided, decisions: Decisions, history: History) -> None:
        found, gang = self.found, ""
        if isinstance(record, RoundDecided):
            what = f"round {record.round}"
            replayed, gang = decisions.round(record, history)
            found.rounds += 1
        else:
            what = f"preemption search {record.search}"
            replayed = decisions.search(record, history)
            found.searches += 1
        found.mixed += any(len(set(each.seqs)) > 1 for each in record.classes)
        for was, now in zip(record.pods, replayed, strict=True):
            found.decisions += 1
            found.verdicts[was.verdict] += 1
            found.pods.add(was.uid)
            if not _agree(was, now, decisions.pods[was.uid].nominated_node):
                self._differ(what, decisions.pods[was.uid].key, was, now, history)
        if isinstance(record, RoundDecided) and record.gang is not None and record.gang.outcome:
            found.gangs += 1
            if gang != record.gang.outcome:
                of_gang = PodDecided(record.gang.key, 0, "deferred", reason=f"the gang is {record.gang.outcome}")
                now = PodDecided(record.gang.key, 0, "deferred", reason=f"the gang is {gang}")
                self._differ(what, record.gang.key, of_gang, now, history)

    def _stop(self, record: Decided, decisions: Decisions, history: History) -> None:
        """Explains the decision if the pod is in it. Steps of gangs are decided all the same, for later ones."""
        wanted = next((i for i, pod in enumerate(record.pods) if self._is_wanted(pod, decisions)), None)
        is_step = isinstance(record, RoundDecided) and record.gang is not None
        if wanted is None and not is_step:
            return
        explained = None if wanted is None else decisions.explain(record.pods[wanted], record, history)
        if isinstance(record, RoundDecided):
            what, (replayed, _) = f"round {record.round}", decisions.round(record, history)
        else:
            what, replayed = f"preemption search {record.search}", decisions.search(record, history)
        if wanted is not None and explained is not None:
            pod = record.pods[wanted]
            reasons = Counter(status.message for status in explained.rejected.values())
            seq, name = max(record.classes[pod.of].seqs), decisions.pods[pod.uid].key
            why = dict(reasons.most_common())
            victims = _victims(pod, replayed[wanted], history)
            self.stopped = Stopped(what, name, seq, pod, replayed[wanted], explained.scores, why, victims)

    def _is_wanted(self, pod: PodDecided, decisions: Decisions) -> bool:
        if pod.verdict == "deferred" or pod.uid not in decisions.pods:
            return False
        return pod.uid in self._until or decisions.pods[pod.uid].key in self._until

    def _differ(self, what: str, pod: str, was: PodDecided, now: PodDecided, history: History) -> None:
        self.found.different += 1
        self.found.kinds[_kind(was, now)] += 1
        if len(self.found.differences) < MAX_DIFFERENCES:
            self.found.differences.append(Difference(what, pod, was, now, _victims(was, now, history)))


def _agree(was: PodDecided, now: PodDecided, nominated_node: str) -> bool:
    """A pod that takes the node that it is nominated to has a score in older recordings, though it needs none."""
    if nominated_node and was.node == nominated_node:
        was, now = (msgspec.structs.replace(each, score=0) for each in (was, now))
    return was == now


def _victims(was: PodDecided, now: PodDecided, history: History) -> dict[str, str]:
    """Names by uid, of victims that have not left yet."""
    pods = history.image.pods
    return {uid: pods[uid].key for uid in (*was.victims, *now.victims) if uid in pods}


def _kind(was: PodDecided, now: PodDecided) -> str:
    if was.verdict != now.verdict:
        return f"{now.verdict} instead of {was.verdict}"
    if was.node != now.node:
        return f"{now.verdict} elsewhere"
    return f"{now.verdict} otherwise"


def frameworks_of(decider: DeciderShown) -> dict[str, Framework]:
    """The frameworks of the recorded configuration."""
    source = ConfigSource("the recorded configuration", decider.config.encode()) if decider.config else None
    return load_frameworks(source, FeatureGates.parse(decider.feature_gates))


def _how(decider: DeciderShown) -> tuple[object, ...]:
    return decider.config, decider.feature_gates, decider.round_size, decider.ties


def said(decided: PodDecided, victims: Mapping[str, str]) -> str:
    """What was decided, for people. `victims`: names by uid; others are shown by uid."""
    match decided.verdict:
        case "placed":
            extra = "".join(
                f", {name} {value}"
                for name, value in (("volumes", decided.volumes), ("devices", decided.devices))
                if value is not None
            )
            return f"node {decided.node} (score {decided.score}{extra})"
        case "nominated":
            names = ", ".join(victims.get(uid, uid) for uid in decided.victims)
            return f"nominated to node {decided.node}, victims {names or 'none'}"
        case "deferred":
            return decided.reason or "left for a later round"
        case _:
            return f"{decided.verdict}: {decided.reason}"
