"""What another configuration would have decided of the recorded pods, in the cluster that changes as recorded.

Two runs take the same entries, one with the recorded configuration and one with the other, and each goes on from what
it has decided itself. So what differs is due to the configuration alone. A run decides at once and binds at once:

- pods are decided when they were, and again, if they did not fit, whenever room may have become free;
- victims leave at once, those that were evicted in the recording stay, and every other pod leaves when it left;
- nodes and other objects change as they did.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flotilla.results import error
from services.cycle.extenders import Extenders
from services.cycle.preemption.candidate_search import CandidateSearch, Preemption, SearchCase
from services.cycle.round.admission import Admission, PodInfo
from services.cycle.round.assign import RoundResult, Unfit
from services.cycle.round.attempts import MAX_DOMAINS_TRIED
from services.cycle.round.gang import GangRound
from services.cycle.round.gangs import AnyGang
from services.cycle.round.placement_search import MAX_STEPS as MAX_SEARCH_STEPS
from services.cycle.round.round import Round
from services.cycle.round.tree_round import TreeRound
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.queue import Gang
from shared.messages.recording import DeciderShown, PodsShown, RoundDecided, SearchDecided, WorkerShards
from shared.messages.state import (
    Change,
    Delta,
    Loads,
    NominationGone,
    PodGone,
    PodNominated,
    PodPlaced,
    State,
)
from shared.model.resources import allocatable
from tools.recording.file import Entry
from tools.replay.decisions import EPOCH, Decisions, Incomparable, in_its_group
from tools.replay.replay import frameworks_of
from tools.replay.states import History, Judges

ALL = [WorkerShards("worker", [0])]
MAX_STEPS = 64
"""Rounds about the same pods, of which some are deferred each time."""
MAX_GANG_STEPS = MAX_STEPS * (1 + MAX_DOMAINS_TRIED) + MAX_SEARCH_STEPS
"""Of one gang, which tries several domains and then searches."""
ZONE = "topology.kubernetes.io/zone"
RESOURCES = ("cpu", "memory")


@dataclass(slots=True)
class Tally:
    """Of one run: the last place of each pod that was to be decided, empty if it had none; `names`: by uid."""

    placed: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    preemptions: int = 0
    victims: int = 0
    utilisation: dict[str, float] = field(default_factory=dict)
    """By resource: requested of what is allocatable, at the end."""
    zones: Counter[str] = field(default_factory=Counter)
    """Pods at the end, by zone."""


class Run:
    def __init__(self, frameworks: Mapping[str, Framework], ties: Ties, round_size: int) -> None:
        self.tally = Tally()
        self._decisions = Decisions(frameworks, ties, round_size)
        self._admission = Admission(frameworks, Extenders(), keeps_labels=True)
        self._history: History | None = None
        self._pods: dict[str, PodInfo] = {}
        self._waiting: dict[str, int] = {}
        """Pods that did not fit, and how often room had become free then."""
        self._freed = 0
        self._victims: set[str] = set()
        """Pods that were evicted in the recording: without that, they stay."""
        self._members: dict[str, dict[str, None]] = {}
        """By gang: those that its steps have named so far."""
        self._gangs: dict[str, Gang] = {}
        """As their first steps named them."""
        self._rehearsed: set[str] = set()
        """Gangs whose present steps were no decision: victims of a gang are not searched for here."""
        self._rounds = 0

    def take(self, entry: Entry) -> None:
        match entry:
            case State() if self._history is None:
                self._history = History(entry)
            case Delta():
                self._on_delta(entry)
            case PodsShown():
                self._on_pods(entry)
            case RoundDecided():
                self._on_round(entry)
            case SearchDecided():
                self._victims.update(uid for pod in entry.pods for uid in pod.victims)
                self._victims.update(() if entry.gang is None else entry.gang.victims)

    def finish(self) -> Tally:
        if self._history is not None:
            image = self._history.image
            used: Counter[str] = Counter()
            there: Counter[str] = Counter()
            for pod in image.pods.values():
                used.update({name: amount for name, amount in pod.load.requests.items() if name in RESOURCES})
                self.tally.zones[image.nodes[pod.node].metadata.labels.get(ZONE, "")] += 1
            for node in image.nodes.values():
                there.update(allocatable(node))
            self.tally.utilisation = {name: used[name] / there[name] for name in RESOURCES if there[name]}
        return self.tally

    # Recorded changes

    def _on_delta(self, delta: Delta) -> None:
        history = self._history
        if history is None:
            return
        loads, changes = Loads(delta.loads), list[Change]()
        for change in delta.changes:
            match change:
                case PodPlaced(uid=uid):
                    changes += self._on_placed(change, delta, history)
                case PodGone(uid=uid):
                    self._waiting.pop(uid, None)
                    if uid not in self._victims and uid in history.image.pods:
                        changes.append(change)
                        self._freed += 1
                case PodNominated() | NominationGone():
                    pass
                case _:
                    changes.append(change)
                    self._freed += 1
        self._apply(changes, loads)

    def _on_placed(self, placed: PodPlaced, delta: Delta, history: History) -> Iterable[Change]:
        """A pod that this run decides keeps its place; only what it counts for may have changed."""
        uid, there = placed.uid, history.image.pods.get(placed.uid)
        if uid in self._victims:
            return
        if uid not in self._pods:
            yield placed
        elif there is not None:
            yield PodPlaced(uid, there.node, placed.load, placed.key, placed.started)

    def _on_pods(self, shown: PodsShown) -> None:
        for each in shown.pods:
            info, failure = self._admission.admit(each.queued, 0.0)
            self.tally.names[each.uid] = info.key
            if failure is None:
                self._pods[each.uid] = info
            else:
                self._end(info, failure.message)

    def _on_round(self, record: RoundDecided) -> None:
        history = self._history
        if history is None:
            return
        step = record.gang
        uids = [pod.uid for pod in record.pods]
        if step is not None and step.first:
            (self._rehearsed.add if step.gone else self._rehearsed.discard)(step.key)
        if step is not None and step.key in self._rehearsed:
            return
        if step is not None:
            members = self._members.setdefault(step.key, {})
            members.update(dict.fromkeys((*step.pods, *uids)))
            if step.gang is not None:
                self._gangs[step.key] = step.gang
            if not step.outcome:
                return
            uids = list(self._members.pop(step.key))
        of_gang = None if step is None else self._gangs.pop(step.key, Gang(step.key, step.least))
        wanted = [self._pods[uid] for uid in uids if uid in self._pods and uid not in history.image.pods]
        for info in wanted:
            info.gang = in_its_group(info, of_gang)
            self._waiting.pop(info.uid, None)
        if wanted:
            self._decide(wanted, history)
        again = [self._pods[uid] for uid, freed in self._waiting.items() if freed < self._freed]
        for info in again:
            if info.gang is None:
                del self._waiting[info.uid]
                self._decide([info], history)

    # Decisions

    def _decide(self, pods: Sequence[PodInfo], history: History) -> None:
        gang = _gang_of(pods)
        if gang is not None and gang.is_over:
            self._take_outcome(gang.outcome(), history)
            return
        open_ = list(pods)
        for _ in range(MAX_STEPS if gang is None else MAX_GANG_STEPS):
            is_asked = gang is not None and bool(gang.asked())
            open_ = open_ if gang is None else gang.asked() or list(gang.open)
            try:
                result = self._round(open_, gang, history)
            except Incomparable as why:
                result = RoundResult([], failed=[(info, error(str(why))) for info in open_])
            if gang is not None:
                if not is_asked:
                    gang.open.clear()
                gang.take(result)
                open_ = list(gang.open)
                if not gang.is_over:
                    continue
                result = gang.outcome()
            self._take_outcome(result, history)
            open_ = result.deferred
            if not open_:
                return
        for info in open_:
            self._end(info, "left for a later round")

    def _take_outcome(self, result: RoundResult, history: History) -> None:
        self._place(result)
        for info, status in result.failed:
            self._end(info, status.message)
        for info, unfit in (*result.unfit, *result.withheld):
            self._on_unfit(info, unfit, history)

    def _round(self, pods: list[PodInfo], gang: AnyGang | None, history: History) -> RoundResult:
        self._rounds += 1
        decisions = self._decisions
        round_ = Round(self._rounds, pods, decisions.cache, gang)
        keys: tuple[str, ...] | None = None
        while keys != round_.keys:
            keys = round_.keys
            decisions.settle(round_, round_.classes, self._judges(history), history)
        return round_.decide(decisions.frameworks)

    def _judges(self, history: History) -> Judges:
        return self._decisions.judges(ALL, [history.newest])

    def _place(self, result: RoundResult) -> None:
        loads = Loads()
        self._apply(
            [
                PodPlaced(info.uid, placement.node, loads.number(info.load), info.key)
                for info, placement in result.decided
            ],
            loads,
        )
        for info, placement in result.decided:
            self.tally.placed[info.uid] = placement.node
            self.tally.reasons.pop(info.uid, None)

    def _on_unfit(self, info: PodInfo, unfit: Unfit, history: History) -> None:
        found = self._search(info, unfit, history)
        if found is None or not found.nominated:
            self._end(info, unfit.message)
            return
        self._apply([PodGone(victim.uid) for victim in found.victims], Loads())
        self._freed += 1
        self.tally.preemptions += 1
        self.tally.victims += len(found.victims)
        self._place(self._round([info], None, history))
        if info.uid not in history.image.pods:
            self._end(info, unfit.message)

    def _search(self, info: PodInfo, unfit: Unfit, history: History) -> Preemption | None:
        decisions, profile = self._decisions, info.template.profile
        framework = decisions.frameworks[profile]
        if not framework.post_filter or not unfit.nodes or info.gang is not None:
            return None
        search = CandidateSearch(self._rounds, [SearchCase(info.class_id, [info], unfit)])
        decisions.gather(search, [info.class_id], self._judges(history), history)
        return search.outcome(info.class_id, framework, decisions.ties)

    def _end(self, info: PodInfo, reason: str) -> None:
        """It has no place, and waits for room."""
        self.tally.placed[info.uid] = ""
        self.tally.reasons[info.uid] = reason
        self._waiting[info.uid] = self._freed

    def _apply(self, changes: list[Change], loads: Loads) -> None:
        if changes and self._history is not None:
            self._history.take(Delta(EPOCH, self._history.newest + 1, changes, loads.items))


@dataclass(frozen=True, slots=True)
class Contrast:
    """Both runs, and by name the pods that differ: where they were placed with either configuration."""

    before: Tally
    after: Tally
    moved: dict[str, tuple[str, str]]
    now_fit: dict[str, str]
    no_longer_fit: dict[str, str]
    """Why, by pod."""
    same: int
    as_recorded: int
    """Pods that the run with the recorded configuration placed where they were placed then. It decides at other
    moments, so these need not be all.
    """


class Counterfactual:
    """Takes the entries of a recording one by one."""

    def __init__(self, frameworks: Mapping[str, Framework]) -> None:
        """`frameworks`: of the other configuration."""
        self._frameworks = frameworks
        self._runs: tuple[Run, Run] | None = None
        self._early: list[Entry] = []
        """What comes before it is known how it was decided."""
        self._recorded: dict[str, str] = {}
        """Where pods were placed when it was recorded, by uid."""

    def take(self, entry: Entry) -> None:
        if self._runs is None and isinstance(entry, DeciderShown):
            recorded = frameworks_of(entry)
            ties, size = entry.ties, entry.round_size
            self._runs = Run(recorded, ties, size), Run(self._frameworks, ties, size)
            for each in self._early:
                self.take(each)
        elif self._runs is None:
            self._early.append(entry)
        else:
            if isinstance(entry, RoundDecided):
                self._recorded.update({pod.uid: pod.node for pod in entry.pods if pod.verdict == "placed"})
            for run in self._runs:
                run.take(entry)

    def finish(self) -> Contrast:
        before, after = (run.finish() for run in self._runs) if self._runs is not None else (Tally(), Tally())
        moved: dict[str, tuple[str, str]] = {}
        now_fit: dict[str, str] = {}
        no_longer: dict[str, str] = {}
        same = 0
        for uid in before.placed.keys() | after.placed.keys():
            was, now = before.placed.get(uid, ""), after.placed.get(uid, "")
            name = before.names[uid]
            if was == now:
                same += 1
            elif not was:
                now_fit[name] = now
            elif not now:
                no_longer[name] = after.reasons.get(uid, "")
            else:
                moved[name] = (was, now)
        as_recorded = sum(self._recorded.get(uid, "") == node for uid, node in before.placed.items())
        moved = dict(sorted(moved.items()))
        return Contrast(before, after, moved, _sorted(now_fit), _sorted(no_longer), same, as_recorded)


def _gang_of(pods: Sequence[PodInfo]) -> AnyGang | None:
    first = pods[0].gang
    if first is None:
        return None
    return TreeRound(pods) if first.groups else GangRound(pods)


def _sorted(by_name: dict[str, str]) -> dict[str, str]:
    return dict(sorted(by_name.items()))
