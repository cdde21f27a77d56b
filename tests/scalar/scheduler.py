"""A slow scheduler, written from kube-scheduler's rules: one pod and one node at a time, no vectors and no caches.

It answers in the form of golden cases, so that the services' cores are compared with it like with kube-scheduler.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flotilla.results import Code, Status, error, unresolvable
from shared.config.points import ExtensionPoint as Point
from shared.config.structs import ProfileConfig
from shared.framework.loading import load_scheduler_config
from shared.model.objects import Pod, PodDisruptionBudget
from testing.inprocess.cases import Case, RawCase, decoded
from testing.inprocess.device_cases import written_devices
from tests.scalar import devices, volumes
from tests.scalar import plugins as scalar
from tests.scalar.cluster import Cluster, NodeInfo
from tests.scalar.plugins import Cycle, Plugin, Rejected, Skip, selects

Answer = dict[str, Any]
Statuses = dict[str, Status]
LOWEST_PRIORITY = -(2**31)
NOW = float("inf")


PLUGINS: Mapping[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (
        *(scalar.NodeName, scalar.NodeUnschedulable, scalar.TaintToleration, scalar.NodeAffinity, scalar.NodePorts),
        *(scalar.NodeResourcesFit, scalar.NodeResourcesBalancedAllocation, scalar.ImageLocality),
        *(scalar.NodeDeclaredFeatures, scalar.InterPodAffinity, scalar.PodTopologySpread, devices.DynamicResources),
        *(volumes.VolumeRestrictions, volumes.VolumeZone, volumes.VolumeBinding, volumes.NodeVolumeLimits),
    )
}


class Unscored(Exception):
    """Scores cannot be computed, and kube-scheduler does without: no other node is there to compare with."""


class CycleFailed(Exception):
    """The attempt ends in an error; `texts` are those that may be reported."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(*texts)
        self.texts = sorted(set(texts))


@dataclass
class Search:
    """What filtering one pod came to."""

    cycle: Cycle
    skipped: set[str] = field(default_factory=set)
    rejection: Status | None = None
    allowed: set[str] | None = None
    restricted_by: list[str] = field(default_factory=list)
    statuses: Statuses = field(default_factory=dict)


class Profile:
    def __init__(self, config: ProfileConfig) -> None:
        made: dict[str, Plugin] = {}
        self._at: dict[Point, list[Plugin]] = {}
        for point, refs in config.plugins.items():
            for ref in refs:
                if ref.name in PLUGINS and ref.name not in made:
                    made[ref.name] = PLUGINS[ref.name](config.args.get(ref.name))
            self._at[point] = [made[ref.name] for ref in refs if ref.name in PLUGINS]
        self.post_filters = [ref.name for ref in config.plugins.get(Point.POST_FILTER, ())]
        self.reserves = [ref.name for ref in config.plugins.get(Point.RESERVE, ())]
        self.weights = {ref.name: ref.weight for ref in config.plugins.get(Point.SCORE, ())}

    def at(self, point: Point) -> list[Plugin]:
        return self._at.get(point, [])

    def runs(self, point: Point, name: str) -> bool:
        return any(plugin.name == name for plugin in self.at(point))


def expected_of(raw: RawCase) -> list[Answer]:
    """The answers for the pending pods of a case, one after the other."""
    case = decoded({**raw, "expected": []})
    config = load_scheduler_config(raw.get("config"))
    profiles = {profile.scheduler_name: Profile(profile) for profile in config.profiles}
    cluster = Cluster(case)
    answers: list[Answer] = []
    for pod in case.pending:
        profile = profiles[pod.spec.scheduler_name]
        gate = devices.gate(cluster, pod)
        scheduler = Scheduler(cluster, profile)
        answer = scheduler.schedule(pod)
        if gate is not None:
            answer["preenqueue"] = gate
        answers.append(answer)
        node = answer.get("chosen")
        if node is not None:
            binds = profile.runs(Point.FILTER, "VolumeBinding") and profile.runs(Point.PRE_FILTER, "VolumeBinding")
            if binds and volumes.claim_names(pod, ephemeral=True):
                volumes.assume(cluster, pod, node)
            decision = devices.decide(scheduler.cycle, cluster.nodes[node])
            if decision is not None:
                answer["allocations"] = written_devices(decision)
                devices.assume(cluster, pod, decision)
            cluster.place(pod, node)
    return answers


class Scheduler:
    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile

    def schedule(self, pod: Pod) -> Answer:
        answer: Answer = {"pod": pod.key}
        self.cycle = Cycle(self._cluster, pod)
        search = Search(self.cycle)
        try:
            self._pre_filter(search)
            if search.rejection is not None:
                answer["prefilter"] = _shown(search.rejection, search)
                return self._fail(search, answer)
            if search.allowed is not None:
                answer["allowed"] = sorted(search.allowed)
            feasible = self._filter(search)
            answer["filter"] = {
                name: _shown(search.statuses[name], search) if name in search.statuses else None
                for name in self._cluster.nodes
            }
            if not feasible:
                return self._fail(search, answer)
            return self._choose(search, feasible, answer)
        except CycleFailed as failed:
            return {"pod": pod.key, "errors": failed.texts}

    # PreFilter and Filter

    def _pre_filter(self, search: Search) -> None:
        for plugin in self._profile.at(Point.PRE_FILTER):
            try:
                nodes = plugin.pre_filter(search.cycle)
            except Skip:
                search.skipped.add(plugin.name)
                continue
            except Rejected as cause:
                search.rejection = cause.status.by(plugin.name)
                return
            search.cycle.prepared.add(plugin.name)
            if nodes is not None:
                search.restricted_by.append(plugin.name)
                search.allowed = nodes if search.allowed is None else search.allowed & nodes

    def _filter(self, search: Search) -> list[NodeInfo]:
        feasible: list[NodeInfo] = []
        for info in self._cluster.infos():
            if search.allowed is not None and info.node.name not in search.allowed:
                names = " ".join(sorted(search.restricted_by))
                search.statuses[info.node.name] = unresolvable(f"node(s) didn't satisfy plugin(s) [{names}]")
                continue
            status = self._fits(search, info)
            if status is None:
                feasible.append(info)
            else:
                search.statuses[info.node.name] = status
        failures = [status.message for status in search.statuses.values() if status.code is Code.ERROR]
        if failures:
            raise CycleFailed(failures)
        return feasible

    def _fits(self, search: Search, info: NodeInfo) -> Status | None:
        """With pods of at least the pod's priority that are nominated to the node, and without them."""
        pod = search.cycle.pod
        nominated = [
            each
            for each in self._cluster.nominated_to(info.node.name)
            if each.priority >= pod.priority and each.uid != pod.uid
        ]
        if nominated:
            with_nominated = info.copy()
            for each in nominated:
                with_nominated.add(each)
            status = self._run_filters(search, with_nominated)
            if status is not None:
                return status
        return self._run_filters(search, info)

    def _run_filters(self, search: Search, info: NodeInfo) -> Status | None:
        for plugin in self._profile.at(Point.FILTER):
            if plugin.name in search.skipped:
                continue
            status = plugin.filter(search.cycle, info)
            if status is not None:
                if status.code is Code.ERROR:
                    status = error(f'running "{plugin.name}" filter plugin: {status.message}')
                return status.by(plugin.name)
        return None

    # Scores

    def _choose(self, search: Search, feasible: list[NodeInfo], answer: Answer) -> Answer:
        own = search.cycle.pod.status.nominated_node_name
        names = [info.node.name for info in feasible]
        scores: dict[str, dict[str, int]] = {name: {} for name in names}
        skipped: set[str] = set()
        failure = ""
        if self._profile.at(Point.SCORE):
            for plugin in self._profile.at(Point.PRE_SCORE):
                try:
                    plugin.pre_score(search.cycle, feasible)
                except Skip:
                    skipped.add(plugin.name)
                    continue
                search.cycle.scorable.add(plugin.name)
            for plugin in self._profile.at(Point.SCORE):
                if plugin.name in skipped:
                    continue
                failure = failure or self._why_not_scored(plugin, search.cycle)
                if failure:
                    break
                for name, score in zip(names, plugin.scores(search.cycle, feasible), strict=True):
                    scores[name][plugin.name] = score * self._profile.weights[plugin.name]
        if failure and len(feasible) > 1 and own not in names:
            raise CycleFailed([f"running Score plugins: {failure}"])
        if failure:
            raise Unscored
        totals = {name: sum(of.values()) if self._profile.at(Point.SCORE) else 1 for name, of in scores.items()}
        best = sorted(name for name in names if totals[name] == max(totals.values()))
        answer["skipped_score"] = sorted(skipped)
        answer["scores"] = {name: {"plugins": scores[name], "total": totals[name]} for name in names}
        answer["best"] = best
        answer["chosen"] = own if own in names else best[0]
        if own in names:
            answer["via_nominated"] = True
        return answer

    def _why_not_scored(self, plugin: Plugin, cycle: Cycle) -> str:
        if plugin.name == "DynamicResources" and plugin.name not in cycle.prepared:
            return 'plugin "DynamicResources" failed with: not found'
        if plugin.unscorable is not None and plugin.name not in cycle.scorable:
            return f'plugin "{plugin.name}" failed with: {plugin.unscorable}'
        return ""

    # PostFilter

    def _fail(self, search: Search, answer: Answer) -> Answer:
        nodes = len(self._cluster.nodes)
        if search.rejection is not None:
            reasons = f"{search.rejection.message}."
        else:
            reasons = f"{histogram(list(search.statuses.values()))}."
        message = f"0/{nodes} nodes are available: {reasons}"
        answer["message"] = message
        if self._profile.post_filters:
            found = Preemption(self, self._cluster, search).run(self._profile.post_filters)
            answer["preemption"] = found
            if found.get("message"):
                answer["message"] = f"{message} {found['message']}"
        return answer

    def fits(self, search: Search, info: NodeInfo) -> Status | None:
        return self._fits(search, info)


def histogram(statuses: Sequence[Status]) -> str:
    counts = Counter(reason for status in statuses for reason in status.reasons)
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))


def _shown(status: Status, search: Search) -> Answer:
    shown: Answer = {"plugin": status.plugin, "code": status.code.value, "reasons": list(status.reasons)}
    return shown if status.plugin else shown | {"plugins": sorted(search.restricted_by)}


@dataclass
class Candidate:
    node: str
    victims: list[Pod]
    violations: int


class Preemption:
    def __init__(self, scheduler: Scheduler, cluster: Cluster, search: Search) -> None:
        self._scheduler = scheduler
        self._cluster = cluster
        self._search = search
        self._pod = search.cycle.pod
        self._rejected: Statuses = {}

    def run(self, names: Sequence[str]) -> Answer:
        reasons: list[str] = []
        candidates: list[Candidate] = []
        deallocates: list[str] = []
        for name in names:
            if name == "DynamicResources":
                if "DynamicResources" not in self._search.cycle.prepared:
                    return {"outcomes": [], "message": "not found", "error": True}
                given = devices.given_back(self._search.cycle, self._search.statuses)
                reasons.append(given.message)
                deallocates = sorted(claim.key for claim in given.deallocate)
            elif name == "DefaultPreemption":
                ineligible = self._ineligible()
                if ineligible:
                    reasons.append(f"preemption: {ineligible}")
                    continue
                candidates = self._candidates()
                failures = sorted({s.message for s in self._rejected.values() if s.code is Code.ERROR})
                if candidates:
                    break
                if failures:
                    text = failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]"
                    return {"outcomes": [], "message": f"preemption: {text}", "error": True}
                reasons.append(f"preemption: {self._hopeless()}")
        found: Answer = {"outcomes": [_outcome(each) for each in best_of(candidates)]}
        if deallocates:
            found["deallocates"] = deallocates
        if candidates:
            found["candidates"] = [_outcome(each) for each in candidates]
        else:
            found["message"] = ", ".join(reasons)
        return found

    def _status_of(self, node: str) -> Status:
        absent = self._search.rejection or unresolvable("")
        return self._search.statuses.get(node, absent)

    def _ineligible(self) -> str:
        pod = self._pod
        if pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nominated = pod.status.nominated_node_name
        if nominated in self._cluster.nodes and self._status_of(nominated).code is not Code.UNRESOLVABLE:
            for there in self._cluster.info(nominated).pods:
                if there.priority < pod.priority and _is_being_preempted(there):
                    return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _candidates(self) -> list[Candidate]:
        found: list[Candidate] = []
        for name in self._cluster.nodes:
            if self._status_of(name).code is Code.UNSCHEDULABLE:
                candidate = self._dry_run(self._cluster.info(name))
                if candidate is not None:
                    found.append(candidate)
        return found

    def _dry_run(self, info: NodeInfo) -> Candidate | None:
        name = info.node.name
        lesser = [each for each in info.pods if each.priority < self._pod.priority]
        if not lesser:
            self._rejected[name] = unresolvable("No preemption victims found for incoming pod")
            return None
        for each in lesser:
            info.remove(each)
        status = self._scheduler.fits(self._search, info)
        if status is not None:
            self._rejected[name] = status
            return None
        lesser.sort(key=_importance)
        violating = self._violating(lesser)
        victims: list[Pod] = []
        for each in [*violating, *(each for each in lesser if each not in violating)]:
            info.add(each)
            if self._scheduler.fits(self._search, info) is not None:
                info.remove(each)
                victims.append(each)
        if not victims:
            self._rejected[name] = error(f'expected at least one victim pod on node "{name}"')
            return None
        victims.sort(key=_importance)
        return Candidate(name, victims, sum(each in violating for each in victims))

    def _violating(self, pods: Sequence[Pod]) -> list[Pod]:
        budgets: Mapping[str, PodDisruptionBudget] = self._cluster.objects.disruption_budgets
        left = {key: budget.status.disruptions_allowed for key, budget in budgets.items()}
        found: list[Pod] = []
        for pod in pods:
            violates = False
            for key, budget in budgets.items():
                about = budget.namespace == pod.namespace and selects(budget.spec.selector, pod.metadata.labels)
                if about and pod.name not in budget.status.disrupted_pods:
                    left[key] -= 1
                    violates = violates or left[key] < 0
            if violates:
                found.append(pod)
        return found

    def _hopeless(self) -> str:
        nodes = len(self._cluster.nodes)
        absent = nodes - len(self._rejected)
        useless = [unresolvable("Preemption is not helpful for scheduling")] * absent
        return f"0/{nodes} nodes are available: {histogram([*self._rejected.values(), *useless])}."


def _importance(pod: Pod) -> tuple[int, float]:
    return -pod.priority, NOW if pod.started is None else pod.started


def _is_being_preempted(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None and any(
        (each.type, each.status, each.reason) == ("DisruptionTarget", "True", "PreemptionByScheduler")
        for each in pod.status.conditions
    )


def best_of(candidates: Sequence[Candidate]) -> list[Candidate]:
    left = list(candidates)
    for cost in (_violations, _highest, _sum, _count, _start):
        if left:
            least = min(map(cost, left))
            left = [each for each in left if cost(each) == least]
    return left


def _violations(candidate: Candidate) -> float:
    return candidate.violations


def _highest(candidate: Candidate) -> float:
    return candidate.victims[0].priority


def _sum(candidate: Candidate) -> float:
    return sum(victim.priority - LOWEST_PRIORITY for victim in candidate.victims)


def _count(candidate: Candidate) -> float:
    return len(candidate.victims)


def _start(candidate: Candidate) -> float:
    highest = candidate.victims[0].priority
    starts = [_importance(victim)[1] for victim in candidate.victims if victim.priority == highest]
    return -min(starts)


def _outcome(candidate: Candidate) -> Answer:
    shown: Answer = {"node": candidate.node, "victims": sorted(victim.key for victim in candidate.victims)}
    return shown | ({"pdb_violations": candidate.violations} if candidate.violations else {})


def with_answers(raw: RawCase) -> RawCase:
    return {**raw, "expected": expected_of(raw)}


def scalar_case(raw: RawCase) -> Case:
    return decoded(with_answers(raw))
