r"""What would help a pod that fits nowhere: changes that the scheduler itself, asked with the change made, accepts.

findings --> candidates (shared/explain/changes) --each asked--> those with which the pod fits
                                                 \--none--> two of them together, each for another plugin

Questions are yielded, and their findings sent back: who asks decides how, and when.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from shared.explain.changes import changes
from shared.explain.changes.change import NOTHING_SUPPOSED, Change
from shared.explain.changes.resources import more_nodes
from shared.explain.changes.volumes import without_devices, without_volumes
from shared.explain.words import count, in_spite_of, listed
from shared.messages.explaining import ExplainPod, NodeFindings, PodExplained
from shared.messages.preemption import Candidate
from shared.model.codec import encode_msgpack
from shared.model.pod import Pod

MAX_HELP = 6
"""Changes that help, in an explanation."""
MAX_ASKED = 24
"""Changes that the scheduler is asked about for one explanation."""
MAX_PAIRS_ASKED = 12
ASKED_FOR = frozenset({"NodeAffinity", "VolumeBinding", "VolumeZone", "DynamicResources", "NodeDeclaredFeatures"})
"""Plugins by which a pod chooses nodes: it most likely has its reasons."""
MAX_PRIORITY = 1_000_000_000
"""The highest that users may give."""

T = TypeVar("T")
Asking = Generator[ExplainPod, NodeFindings | None, T]
"""Yields questions, takes their findings (None if there are none), and returns what came of them."""


class Help(msgspec.Struct, frozen=True, kw_only=True):
    """A change with which the pod fits, as judged by the scheduler itself.

    `text` completes "it would fit if ...". `nodes`: on how many it would then fit. `kind` and `change`: what to do, for
    programs. `certain`: false if only what is left apart from the change was judged, such as a claim that is missing.
    """

    text: str
    kind: str
    nodes: int
    change: dict[str, Any] = {}
    certain: bool = True


async def answered(asking: Asking[T], ask: Callable[[ExplainPod], Awaitable[PodExplained]]) -> T:
    """What comes of the questions if each is asked by `ask`."""
    findings: NodeFindings | None = None
    while True:
        try:
            request = asking.send(findings) if findings is not None else next(asking)
        except StopIteration as end:
            result: T = end.value
            return result
        findings = (await ask(request)).findings


class Advisor:
    """Finds changes of one pod that help, at most `most`, by at most `most_asked` questions about single changes."""

    def __init__(self, pod: Pod, findings: NodeFindings, *, most: int = MAX_HELP, most_asked: int = MAX_ASKED) -> None:
        self._pod = pod
        self._findings = findings
        self._most = most
        self._most_asked = most_asked
        self._asked = 0

    def help(self) -> Asking[tuple[list[Help], list[Help]]]:
        """Single changes that help; or if there are none, pairs of them."""
        if self._findings.pre_filter is not None:
            return (yield from self._all_of(self._instead_of_pre_filter())), []
        found = yield from self._all_of(self._candidates())
        if len(found) < self._most:
            found += yield from self._preemption(bool(found))
        return found, [] if found else (yield from self._pairs())

    def _all_of(self, candidates: Iterable[Change]) -> Asking[list[Help]]:
        """Of changes of one kind about the same thing only the first that helps."""
        found: list[Help] = []
        settled: set[tuple[str, str]] = set()
        for change in candidates:
            parts = (change.detail.get(part) for part in ("topologyKey", "from", "labels"))
            about = (change.kind, str(next(filter(None, parts), change.text)))
            if self._asked >= self._most_asked or len(found) >= self._most:
                break
            if about in settled:
                continue
            helped = yield from self._try(change)
            if helped is not None:
                settled.add(about)
                found.append(helped)
        return found

    def _candidates(self) -> Iterator[Change]:
        """For plugins that alone keep nodes out, a few for each, so that all get a turn.

        Room first, then nodes that repel, then what the pod itself asks for; in each the one that most nodes lack.
        """
        alone = [blocked for blocked in self._findings.blocked if len(blocked.plugins) == 1]
        plugins = [b.plugins[0] for b in sorted(alone, key=lambda each: (_rank(each.plugins[0]), -each.nodes))]
        others = dict.fromkeys(p for blocked in self._findings.blocked for p in blocked.plugins if p not in plugins)
        finders = [changes(plugin, self._findings, self._pod) for plugin in (*plugins, *others)]
        cordons = [changes("NodeUnschedulable", self._findings, self._pod)] if "NodeUnschedulable" in others else []
        yield from _in_turn([*finders[: len(plugins)], *cordons])
        yield from islice(more_nodes(self._findings), 3)

    def _instead_of_pre_filter(self) -> Iterator[Change]:
        """Apart from what PreFilter found missing: whether the pod fits once that is there."""
        status = self._findings.pre_filter
        plugin, message = ("", "") if status is None else (status.plugin, status.message)
        for change in (*without_volumes(plugin, self._pod), *without_devices(plugin, self._pod)):
            name = str(change.detail.get("claim", ""))
            if any(text in message for text in ("not found", "could not find", "does not exist")):
                text = (
                    f"{'claim' if change.kind == 'volume' else 'resource claim'} {self._pod.namespace}/{name} existed"
                )
                yield replace_text(change, text, f"create-{change.kind}")
            elif change.kind == "volume" and name:
                yield replace_text(change, f"its claim {name} were bound", change.kind)
            else:
                yield change

    def _try(self, change: Change) -> Asking[Help | None]:
        self._asked += 1
        pod = change.edit(self._pod)
        if pod == self._pod and change.supposed == NOTHING_SUPPOSED:
            return None
        findings = yield ExplainPod(body=encode_msgpack(pod), supposed=change.supposed, brief=True)
        if findings is None or not findings.feasible:
            return None
        nodes, detail = findings.feasible, dict(change.detail)
        return Help(text=change.text, kind=change.kind, nodes=nodes, change=detail, certain=change.certain)

    def _pairs(self) -> Asking[list[Help]]:
        """Of the nodes that two plugins keep out, a change for each."""
        found: list[Help] = []
        asked = 0
        for blocked in self._findings.blocked:
            if len(blocked.plugins) != 2:
                continue
            one, other = (_of_each_kind(changes(plugin, self._findings, self._pod)) for plugin in blocked.plugins)
            for first in one:
                for second in other:
                    if found or asked >= MAX_PAIRS_ASKED:
                        return found
                    asked += 1
                    helped = yield from self._try(second.after(first))
                    if helped is not None:
                        found.append(helped)
        return found

    # Preemption

    def _preemption(self, has_other_help: bool) -> Asking[list[Help]]:
        """With another policy or a higher priority the pod would make others go."""
        pod, never = self._pod, self._pod.spec.preemption_policy == "Never"
        if self._findings.candidates:
            victims = self._findings.candidates[0]
            return [Help(text=going(victims), kind="preempt", nodes=1, change=_victims(victims))]
        if never:
            candidate = yield from self._candidate(replace(pod, spec=replace(pod.spec, preemption_policy=None)))
            if candidate is not None:
                text = f"its preemptionPolicy were not Never: {going(candidate)}"
                return [Help(text=text, kind="preemption-policy", nodes=1, change=_victims(candidate))]
        if has_other_help or pod.priority >= MAX_PRIORITY:
            return []
        spec = replace(pod.spec, priority=MAX_PRIORITY, preemption_policy=None)
        candidate = yield from self._candidate(replace(pod, spec=spec))
        if candidate is None:
            return []
        needed = max(victim.priority for victim in candidate.victims)
        text = f"its priority were above {needed} (it is {pod.priority}): {going(candidate)}"
        return [Help(text=text, kind="priority", nodes=1, change={**_victims(candidate), "above": needed})]

    def _candidate(self, pod: Pod) -> Asking[Candidate | None]:
        self._asked += 1
        findings = yield ExplainPod(body=encode_msgpack(pod))
        return None if findings is None else next(iter(findings.candidates), None)


def _rank(plugin: str) -> int:
    return 2 if plugin in ASKED_FOR else 1 if plugin == "TaintToleration" else 0


def going(candidate: Candidate) -> str:
    names = listed([victim.key for victim in candidate.victims], 3)
    despite = in_spite_of(candidate.violates)
    return f"{count(len(candidate.victims), 'pod')} of lower priority left node {candidate.node} ({names}){despite}"


def _victims(candidate: Candidate) -> dict[str, object]:
    victims = [victim.key for victim in candidate.victims]
    return {"node": candidate.node, "victims": victims, "violates": list(candidate.violates)}


def replace_text(change: Change, text: str, kind: str) -> Change:
    return Change(text, kind, change.lifts, change.edit, change.supposed, change.detail, change.certain)


def _of_each_kind(candidates: Iterable[Change]) -> Sequence[Change]:
    """The first two of each kind."""
    kinds: dict[str, list[Change]] = {}
    for change in candidates:
        of_kind = kinds.setdefault(change.kind, [])
        if len(of_kind) < 2:
            of_kind.append(change)
    return [change for of_kind in kinds.values() for change in of_kind]


def _in_turn(finders: Sequence[Iterator[Change]]) -> Iterator[Change]:
    """Some of the first, some of the second ..., then the rest."""
    for finder in finders:
        yield from islice(finder, 5)
    for finder in finders:
        yield from finder
