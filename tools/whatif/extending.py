"""Asks extenders about pods that are not there yet, as the cycle asks about pending ones: filter, prioritize, preempt.

They are sent what the state has of pods and nodes; the cycle sends whole objects. Never asked: to bind.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from flotilla.results import Status
from services.cycle.extenders import ExtenderQuestion, VictimQuestion, remaining_candidates, victim_pods
from shared.config.structs import ExtenderConfig
from shared.extenders.client import ExtenderClient
from shared.extenders.talk import Judgement, Subject, Talk, interested, judge, preempt
from shared.extenders.wire import ExtenderVictim, Victims
from shared.messages.preemption import Candidate
from shared.model.objects import Node, encode_json

T = TypeVar("T")


class Converse(Protocol):
    """Holds a talk with these extenders to its end."""

    def __call__(self, extenders: Sequence[ExtenderConfig], talk: Talk[Any]) -> Any: ...


@contextmanager
def calls() -> Iterator[Converse]:
    """Real HTTP calls; to be used where no loop runs. UserError if an extender's URL or certificates are unusable."""
    with asyncio.Runner() as runner:
        client: ExtenderClient | None = None

        async def hold(extenders: Sequence[ExtenderConfig], talk: Talk[T]) -> T:
            nonlocal client
            client = client or ExtenderClient(extenders)
            return await client.converse(talk)

        try:
            yield lambda extenders, talk: runner.run(hold(extenders, talk))
        finally:
            if client is not None:
                runner.run(client.close())


def tells_all(extender: ExtenderConfig) -> bool:
    """Whether a pipeline's configuration, of which secrets and certificates are left out, suffices to ask it."""
    parts = urlsplit(extender.url_prefix)
    return parts.scheme == "http" and parts.username is None and not parts.query


class ExtenderAsker:
    """`node`: the node of this name as it is now."""

    def __init__(
        self, extenders: Sequence[ExtenderConfig], converse: Converse, node: Callable[[str], Node | None]
    ) -> None:
        self._extenders = extenders
        self._converse = converse
        self._node = node

    def judge(self, question: ExtenderQuestion) -> Judgement:
        subject = Subject(encode_json(question.pod), self._nodes)
        asked = interested(self._extenders, question.pod)
        judgement: Judgement = self._converse(self._extenders, judge(asked, subject, question.nodes))
        return judgement

    def left(self, question: VictimQuestion) -> list[Candidate] | Status:
        """The candidates that extenders leave, or why the preemption fails."""
        candidates = {
            each.node: Victims(
                tuple(ExtenderVictim(pod.uid, encode_json(pod)) for pod in victim_pods(each)), each.violations
            )
            for each in question.candidates
        }
        talk = preempt(interested(self._extenders, question.pod), encode_json(question.pod), candidates)
        return remaining_candidates(question.candidates, self._converse(self._extenders, talk))

    def _nodes(self, names: Sequence[str]) -> list[bytes]:
        return [encode_json(node) for name in names if (node := self._node(name)) is not None]
