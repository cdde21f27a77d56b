"""Asking extenders about a round's pods, or about who is to make way for some, all at the same time."""

import asyncio
from collections.abc import Callable

from flotilla.results import Status, error
from services.cycle.extending import AskExtenders, ExtendersAnswered, Question
from services.cycle.fullobjects import Objects
from services.cycle.narrowing import AskAboutVictims, VictimQuestion, VictimsAnswered, as_pods, left_of
from shared.extenders.client import ExtenderClient
from shared.extenders.interest import interested
from shared.extenders.talk import Judgement, Reduced, Subject, judge, preempt
from shared.extenders.wire import Victim, Victims
from shared.messages.preemption import Candidate
from shared.telemetry.fault import Fault


class Asking:
    """`answered` hears of each question once. A newer one ends the one before of its kind, which nobody waits for."""

    def __init__(
        self,
        client: ExtenderClient,
        objects: Objects,
        answered: Callable[[ExtendersAnswered | VictimsAnswered], None],
        trouble: Callable[[str], None],
        fault: Fault,
    ) -> None:
        self._fault = fault
        self._client = client
        self._objects = objects
        self._answered = answered
        self._trouble = trouble
        self._sends_nodes = any(
            not each.node_cache_capable and (each.filter_verb or each.prioritize_verb) for each in client.extenders
        )
        self._tasks: dict[type, asyncio.Task[None]] = {}

    @property
    def sends_nodes(self) -> bool:
        """Whether nodes are to be watched for it."""
        return self._sends_nodes

    def ask(self, wanted: AskExtenders | AskAboutVictims) -> None:
        before = self._tasks.get(type(wanted))
        if before is not None:
            before.cancel()
        work = self._ask(wanted) if isinstance(wanted, AskExtenders) else self._ask_about_victims(wanted)
        task = self._tasks[type(wanted)] = asyncio.create_task(work)
        self._fault.watch(task)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # Nodes

    async def _ask(self, wanted: AskExtenders) -> None:
        judgements = await asyncio.gather(*(self._judge(question) for question in wanted.questions))
        for judgement in judgements:
            for trouble in judgement.troubles:
                self._trouble(trouble)
        classes = (question.class_id for question in wanted.questions)
        self._answered(ExtendersAnswered(wanted.round, wanted.ask, dict(zip(classes, judgements, strict=True))))

    async def _judge(self, question: Question) -> Judgement:
        try:
            extenders = interested(self._client.extenders, question.pod)
            if self._sends_nodes:
                await self._objects.wait_for(question.nodes)
            subject = Subject(await self._objects.pod(question.pod), self._objects.nodes)
            return await self._client.converse(judge(extenders, subject, question.nodes))
        except Exception as cause:  # a fault of ours is this pod's misfortune, and stops nobody else
            return Judgement(failure=error(f"asking extenders: {cause!r}"))

    # Victims

    async def _ask_about_victims(self, wanted: AskAboutVictims) -> None:
        reduced = await asyncio.gather(*(self._reduce(question) for question in wanted.questions))
        left: dict[str, list[Candidate] | Status] = {}
        for question, of_class in zip(wanted.questions, reduced, strict=True):
            left[question.class_id] = left_of(question.candidates, of_class)
            for trouble in of_class.troubles:
                self._trouble(trouble)
        self._answered(VictimsAnswered(wanted.search, left))

    async def _reduce(self, question: VictimQuestion) -> Reduced:
        try:
            extenders = interested(self._client.extenders, question.pod)
            whole = any(extender.preempt_verb and not extender.node_cache_capable for extender in extenders)
            victims = await asyncio.gather(*(self._victims(each, whole=whole) for each in question.candidates))
            nodes = (each.node for each in question.candidates)
            candidates = dict(zip(nodes, victims, strict=True))
            return await self._client.converse(preempt(extenders, await self._objects.pod(question.pod), candidates))
        except Exception as cause:  # as above
            return Reduced(failure=error(f"asking extenders: {cause!r}"))

    async def _victims(self, candidate: Candidate, *, whole: bool) -> Victims:
        """`whole`: with the objects, which only some extenders are sent."""
        pods = as_pods(candidate)
        objects = await asyncio.gather(*map(self._objects.pod, pods)) if whole else [b"{}"] * len(pods)
        victims = (Victim(pod.uid, raw) for pod, raw in zip(pods, objects, strict=True))
        return Victims(tuple(victims), candidate.violations)
