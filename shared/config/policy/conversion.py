"""From a Policy file to a KubeSchedulerConfiguration with one profile that does the same."""

from dataclasses import dataclass, field
from typing import Any, Final

from shared.config.document import DocumentFault, parse_document
from shared.config.durations import format_duration
from shared.config.kinds import Reading
from shared.config.policy.names import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    GONE,
    MANDATORY_PREDICATES,
    OTHER_NAMES,
    PREDICATES,
    PRIORITIES,
    STRATEGIES,
)
from shared.config.policy.plugins import LATER, PluginLists
from shared.config.policy.schema import API_VERSION, KIND, POLICY
from shared.config.problems import Fault, InvalidConfigFile, Problem, Stage, invalid
from shared.config.schema import API_VERSION as CONFIG_VERSION
from shared.config.schema import EXTENDER, Tree
from shared.config.schema import KIND as CONFIG_KIND
from shared.config.validation.nodeaffinity import REQUIRED

MAX_WEIGHT: Final = 2**31 - 1
MAX_HARD_WEIGHT: Final = 100


@dataclass(slots=True)
class Converted:
    """`config`: plain data of v1. `notes`: a line for each thing that is not carried over, or not as it was."""

    config: dict[str, Any]
    notes: list[str]


def convert_policy(text: str | bytes) -> Converted:
    """Raises InvalidConfigFile where the text is no Policy, or one with wrong values."""
    return _Conversion(_read(text)).run()


def _read(text: str | bytes) -> Tree:
    try:
        document = parse_document(text)
    except DocumentFault as fault:
        raise InvalidConfigFile(Stage.DECODE, [Problem("", Fault.INVALID, "", str(fault))]) from None
    value = document.value
    if not isinstance(value, dict):
        raise InvalidConfigFile(Stage.DECODE, [invalid("", value, "the file must be a map")])
    reading = Reading()
    reading.problems += [Problem("", Fault.DUPLICATE, line, line) for line in document.repeated]
    for key, allowed in (("kind", KIND), ("apiVersion", API_VERSION)):
        if value.get(key) != allowed:
            reading.refuse(key, value.get(key), f"must be {allowed}")
    policy: Tree = POLICY.read(value, "", reading)
    for i, priority in enumerate(policy["priorities"] or ()):
        if not 0 < priority["weight"] <= MAX_WEIGHT and priority["name"] != "EqualPriority":
            reading.refuse(f"priorities[{i}].weight", priority["weight"], f"must be from 1 to {MAX_WEIGHT}")
    if not 0 <= policy["hardPodAffinitySymmetricWeight"] <= MAX_HARD_WEIGHT:
        weight = policy["hardPodAffinitySymmetricWeight"]
        reading.refuse("hardPodAffinitySymmetricWeight", weight, f"must be from 0 to {MAX_HARD_WEIGHT}")
    if reading.problems:
        raise InvalidConfigFile(Stage.DECODE, reading.problems)
    return policy


@dataclass(slots=True)
class _Labels:
    """What nodes must and must not have, whatever the value."""

    present: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)


class _Conversion:
    def __init__(self, policy: Tree) -> None:
        self._policy = policy
        self._plugins = PluginLists()
        self._notes: list[str] = []
        self._args: dict[str, dict[str, Any]] = {}
        self._labels = _Labels()

    def run(self) -> Converted:
        self._filter()
        self._score()
        self._enforce_labels()
        self._weigh_hard_affinity()
        self._plugins.add_others()
        if self._policy["alwaysCheckAllPredicates"]:
            self._note("alwaysCheckAllPredicates", "a node is not looked at further once a plugin has rejected it")
        self._notes.append(f"added: {', '.join(LATER)}, which pods of today need and Policy did not know of")
        if older := self._plugins.older():
            self._notes.append(f"for Flotilla only: kube-scheduler v1.36 does not have {', '.join(older)}")
        profile: dict[str, Any] = {"schedulerName": "default-scheduler", "plugins": self._plugins.plain()}
        if self._args:
            profile["pluginConfig"] = [{"name": name, "args": args} for name, args in sorted(self._args.items())]
        config: dict[str, Any] = {"apiVersion": CONFIG_VERSION, "kind": CONFIG_KIND, "profiles": [profile]}
        if self._policy["extenders"]:
            config["extenders"] = [_extender(extender) for extender in self._policy["extenders"]]
        return Converted(config, self._notes)

    # Predicates

    def _filter(self) -> None:
        if self._policy["predicates"] is None:
            wanted = set(DEFAULT_PREDICATES)
        else:
            wanted = set(MANDATORY_PREDICATES)
            for i, predicate in enumerate(self._policy["predicates"]):
                if name := self._predicate(predicate, f"predicates[{i}]"):
                    wanted.add(name)
        for name, plugins in PREDICATES.items():
            if name in wanted:
                for plugin in plugins:
                    self._plugins.filter_with(plugin)

    def _predicate(self, predicate: Tree, path: str) -> str | None:
        name, argument = OTHER_NAMES.get(predicate["name"], predicate["name"]), predicate["argument"] or {}
        if name in PREDICATES:
            if any(argument.values()):
                self._note(f"{path}.argument", f"{name} takes none")
            return name
        if presence := argument.get("labelsPresence"):
            labels = self._labels.present if presence["presence"] else self._labels.absent
            labels += presence["labels"] or []
            self._labels.where.append(f"{path} ({name})")
        if affinity := argument.get("serviceAffinity"):
            keys = ", ".join(affinity["labels"] or ())
            self._note(f"{path} ({name})", f"there is no plugin for serviceAffinity any more (labels: {keys})")
        if not any(argument.values()):
            self._unknown(f"{path} ({name})", name, "predicate")
        return None

    def _enforce_labels(self) -> None:
        """Labels that nodes must have are an affinity of every pod, if the affinity of pods counts at all."""
        labels = self._labels
        if not labels.where:
            return
        where = ", ".join(labels.where)
        if not self._plugins.filters("NodeAffinity"):
            self._note(where, "labelsPresence needs NodeAffinity, which MatchNodeSelector or GeneralPredicates enable")
            return
        expressions = [{"key": key, "operator": "Exists"} for key in labels.present]
        expressions += [{"key": key, "operator": "DoesNotExist"} for key in labels.absent]
        if expressions:
            required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
            self._args["NodeAffinity"] = {"addedAffinity": {REQUIRED: required}}
        self._notes.append(f"changed: {where}: is now addedAffinity of NodeAffinity")

    # Priorities

    def _score(self) -> None:
        weights = self._weights()
        # A plugin that stands for several priorities has the weight of the first of them by name, as it had then.
        for name in sorted(weights):
            plugin = PRIORITIES[name]
            weight = self._plugins.score_with(plugin, weights[name])
            if weight != weights[name]:
                self._note(f"weight {weights[name]} of {name}", f"{plugin} has the weight {weight} already")
        if "SelectorSpreadPriority" in weights:
            self._args["PodTopologySpread"] = {"defaultingType": "System"}
        elif "EvenPodsSpreadPriority" in weights:
            self._args["PodTopologySpread"] = {"defaultingType": "List"}

    def _weights(self) -> dict[str, int]:
        if self._policy["priorities"] is None:
            return dict(DEFAULT_PRIORITIES)
        weights: dict[str, int] = {}
        for i, priority in enumerate(self._policy["priorities"]):
            path = f"priorities[{i}]"
            name = self._priority(priority, path)
            if name is None or not self._is_free(name, weights, path):
                continue
            if name in weights:
                self._note(f"weight {weights[name]} of {name}", f"it is given once more, with {priority['weight']}")
            weights[name] = priority["weight"]
        return weights

    def _priority(self, priority: Tree, path: str) -> str | None:
        name, argument = OTHER_NAMES.get(priority["name"], priority["name"]), priority["argument"] or {}
        where = f"{path} ({name})"
        if ratio := argument.get("requestedToCapacityRatioArguments"):
            if name in PRIORITIES and name != "RequestedToCapacityRatio":
                self._note(f"{path}.argument", f"{name} takes none")
                return name
            self._score_by_shape(ratio)
            return "RequestedToCapacityRatio"
        if name in PRIORITIES and name != "RequestedToCapacityRatio":
            if any(argument.values()):
                self._note(f"{path}.argument", f"{name} takes none")
            return name
        if anti := argument.get("serviceAntiAffinity"):
            self._note(where, f"there is no plugin for serviceAntiAffinity any more (label: {anti['label']})")
        elif preference := argument.get("labelPreference"):
            has = "has" if preference["presence"] else "does not have"
            self._note(where, f"there is no plugin any more that prefers a node which {has} {preference['label']}")
        else:
            self._unknown(where, name, "priority")
        return None

    def _is_free(self, name: str, weights: dict[str, int], path: str) -> bool:
        """Whether NodeResourcesFit scores in no other way yet; it has one."""
        taken = next((other for other in weights if other in STRATEGIES), None)
        if name not in STRATEGIES or taken in (None, name):
            if name in STRATEGIES and name != "RequestedToCapacityRatio":
                self._args["NodeResourcesFit"] = {"scoringStrategy": {"type": STRATEGIES[name]}}
            return True
        self._note(
            f"{path} ({name})", f"NodeResourcesFit scores by {STRATEGIES[taken or name]} already, and in one way"
        )
        return False

    def _score_by_shape(self, ratio: Tree) -> None:
        other = self._args.get("NodeResourcesFit")
        if other is not None and other["scoringStrategy"]["type"] != STRATEGIES["RequestedToCapacityRatio"]:
            return
        strategy: dict[str, Any] = {
            "type": STRATEGIES["RequestedToCapacityRatio"],
            "requestedToCapacityRatio": {"shape": ratio["shape"] or []},
        }
        if ratio["resources"]:
            strategy["resources"] = [
                {"name": resource["name"], "weight": resource["weight"] or 1} for resource in ratio["resources"]
            ]
        self._args["NodeResourcesFit"] = {"scoringStrategy": strategy}

    def _weigh_hard_affinity(self) -> None:
        weight = self._policy["hardPodAffinitySymmetricWeight"]
        if weight and self._plugins.scores("InterPodAffinity"):
            self._args["InterPodAffinity"] = {"hardPodAffinityWeight": weight}
        elif weight:
            self._note("hardPodAffinitySymmetricWeight", "it does nothing without InterPodAffinityPriority")

    # What is told

    def _unknown(self, where: str, name: str, what: str) -> None:
        self._note(where, GONE.get(name, f"there is no such {what}"))

    def _note(self, what: str, why: str) -> None:
        self._notes.append(f"not carried over: {what}: {why}")


def _extender(policy: Tree) -> dict[str, Any]:
    renamed = {**policy, "enableHTTPS": policy["enableHttps"]}
    plain = EXTENDER.written(renamed)
    assert isinstance(plain, dict)
    if policy["httpTimeout"]:
        return {**plain, "httpTimeout": format_duration(policy["httpTimeout"])}
    return {key: value for key, value in plain.items() if key != "httpTimeout"}
