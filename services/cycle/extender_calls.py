"""Calls extenders about a round's pods, or about the victims of a preemption, all at once.

The services keep only what schedulers read of an object, but an extender may read anything. So the cycle watches nodes
itself for extenders that are sent node objects, and re-reads pods from the API server. `managedFields` are left out.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from flotilla.results import Status, error
from services.cycle.extenders import (
    AskAboutVictims,
    AskExtenders,
    AskForExplanation,
    ExtenderQuestion,
    ExtendersAnswered,
    ExtendersExplained,
    VictimQuestion,
    VictimsAnswered,
    remaining_candidates,
    victim_pods,
)
from shared.errors import FlotillaError
from shared.extenders.client import ExtenderClient
from shared.extenders.talk import Judgement, Reduced, Subject, interested, judge, preempt
from shared.extenders.wire import ExtenderVictim, Victims
from shared.kube.client import KubeClient
from shared.kube.listwatch import ListDone, ListPage, ListStarted, ListWatchEvent, ObjectEvents
from shared.messages.preemption import Candidate
from shared.model.objects import Pod, encode_json
from shared.telemetry.fault import Fault

NODES = "/api/v1/nodes"
POD_PATIENCE = 1.0
"""Seconds for reading a pod; after that the extender is sent what the cycle knows of it."""
NODE_PATIENCE = 1.0
"""Seconds until the cycle's own watch must have shown a node that a worker offers."""


class Objects(Protocol):
    """Objects as JSON."""

    async def pod(self, pod: Pod) -> bytes: ...

    async def wait_for(self, names: Iterable[str]) -> None: ...

    def nodes(self, names: Sequence[str]) -> list[bytes]: ...


class FullObjects:
    """`hear` handles a ListWatch of `NODES`, which runs if an extender is sent nodes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._nodes: dict[str, bytes] = {}
        self._listed: dict[str, bytes] | None = None
        self._changed = asyncio.Event()

    async def pod(self, pod: Pod) -> bytes:
        """The pod from the API server, or as the cycle knows it if that does not answer or has another of that name."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            async with asyncio.timeout(POD_PATIENCE):
                raw = await self._client.get(path)
            found: Any = None if raw is None else msgspec.json.decode(raw)
        except (FlotillaError, TimeoutError, msgspec.DecodeError):
            found = None
        if isinstance(found, dict) and _meta(found).get("uid") == pod.uid:
            return _trimmed(found)
        return encode_json(pod)

    async def wait_for(self, names: Iterable[str]) -> None:
        """Waits until all these nodes are known, at most NODE_PATIENCE."""
        wanted = set(names)
        try:
            async with asyncio.timeout(NODE_PATIENCE):
                while not wanted <= self._nodes.keys():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    def nodes(self, names: Sequence[str]) -> list[bytes]:
        """The known ones of these nodes, in this order."""
        return [node for name in names if (node := self._nodes.get(name)) is not None]

    async def hear(self, heard: ListWatchEvent) -> None:
        match heard:
            case ListStarted():
                self._listed = {}
            case ListPage(objects=objects) if self._listed is not None:
                for raw in objects:
                    self._take(self._listed, raw, gone=False)
            case ListDone() if self._listed is not None:
                self._nodes, self._listed = self._listed, None
            case ObjectEvents(events=events):
                for event in events:
                    self._take(self._nodes, event.object, gone=event.type == "DELETED")
            case _:
                return
        self._changed.set()

    def _take(self, nodes: dict[str, bytes], raw: msgspec.Raw, *, gone: bool) -> None:
        """Skips objects that cannot be decoded."""
        try:
            found: Any = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            return
        name = _meta(found).get("name") if isinstance(found, dict) else None
        if not isinstance(name, str):
            return
        if gone:
            nodes.pop(name, None)
        else:
            nodes[name] = _trimmed(found)


class ExtenderCalls:
    """Calls `answered` once for each effect. A newer effect of a kind cancels the one before."""

    def __init__(
        self,
        client: ExtenderClient,
        objects: Objects,
        answered: Callable[[ExtendersAnswered | ExtendersExplained | VictimsAnswered], None],
        trouble: Callable[[str], None],
        fault: Fault,
    ) -> None:
        """`trouble` logs what went wrong with an extender without failing an attempt."""
        self._fault = fault
        self._client = client
        self._objects = objects
        self._answered = answered
        self._trouble = trouble
        self.sends_nodes = any(
            not each.node_cache_capable and (each.filter_verb or each.prioritize_verb) for each in client.extenders
        )
        """Whether an extender is sent node objects, so that nodes must be watched."""
        self._tasks: dict[type, asyncio.Task[None]] = {}

    def ask(self, wanted: AskExtenders | AskForExplanation | AskAboutVictims) -> None:
        before = self._tasks.get(type(wanted))
        if before is not None:
            before.cancel()
        match wanted:
            case AskExtenders():
                work = self._ask(wanted)
            case AskForExplanation():
                work = self._ask_for_explanation(wanted)
            case AskAboutVictims():
                work = self._ask_about_victims(wanted)
        task = self._tasks[type(wanted)] = asyncio.create_task(work)
        self._fault.watch(task)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _ask(self, wanted: AskExtenders) -> None:
        judgements = await asyncio.gather(*(self._judge(question) for question in wanted.questions))
        self._log_troubles(judgements)
        classes = (question.class_id for question in wanted.questions)
        self._answered(ExtendersAnswered(wanted.round, wanted.ask, dict(zip(classes, judgements, strict=True))))

    async def _ask_for_explanation(self, wanted: AskForExplanation) -> None:
        judgement = await self._judge(wanted.question)
        self._answered(ExtendersExplained(wanted.number, wanted.ask, judgement))

    async def _ask_about_victims(self, wanted: AskAboutVictims) -> None:
        reduced = await asyncio.gather(*(self._reduce(question) for question in wanted.questions))
        self._log_troubles(reduced)
        left: dict[str, list[Candidate] | Status] = {
            question.class_id: remaining_candidates(question.candidates, of_class)
            for question, of_class in zip(wanted.questions, reduced, strict=True)
        }
        self._answered(VictimsAnswered(wanted.search, left))

    def _log_troubles(self, answers: Iterable[Judgement | Reduced]) -> None:
        for answer in answers:
            for trouble in answer.troubles:
                self._trouble(trouble)

    async def _judge(self, question: ExtenderQuestion) -> Judgement:
        try:
            extenders = interested(self._client.extenders, question.pod)
            if self.sends_nodes:
                await self._objects.wait_for(question.nodes)
            subject = Subject(await self._objects.pod(question.pod), self._objects.nodes)
            return await self._client.converse(judge(extenders, subject, question.nodes))
        except Exception as cause:  # fails this pod's attempt only
            return Judgement(failure=error(f"asking extenders: {cause!r}"))

    async def _reduce(self, question: VictimQuestion) -> Reduced:
        try:
            extenders = interested(self._client.extenders, question.pod)
            whole = any(extender.preempt_verb and not extender.node_cache_capable for extender in extenders)
            victims = await asyncio.gather(*(self._victims(each, whole=whole) for each in question.candidates))
            nodes = (each.node for each in question.candidates)
            candidates = dict(zip(nodes, victims, strict=True))
            return await self._client.converse(preempt(extenders, await self._objects.pod(question.pod), candidates))
        except Exception as cause:  # fails this pod's preemption only
            return Reduced(failure=error(f"asking extenders: {cause!r}"))

    async def _victims(self, candidate: Candidate, *, whole: bool) -> Victims:
        """`whole`: with the pod objects, which only some extenders are sent."""
        pods = victim_pods(candidate)
        objects = await asyncio.gather(*map(self._objects.pod, pods)) if whole else [b"{}"] * len(pods)
        victims = (ExtenderVictim(pod.uid, raw) for pod, raw in zip(pods, objects, strict=True))
        return Victims(tuple(victims), candidate.violations)


def _meta(found: dict[str, Any]) -> dict[str, Any]:
    meta = found.get("metadata")
    return meta if isinstance(meta, dict) else {}


def _trimmed(found: dict[str, Any]) -> bytes:
    _meta(found).pop("managedFields", None)
    return msgspec.json.encode(found)
