"""Fences all claims of devices that earlier terms may allocate, once all pods of theirs are fenced.

listed by the API server -+-> not allocated: touched -+-> not allocated, at a new version: fenced
                          |                           +-> gone
                          |                           +-> refused for good: set aside after MAX_TRIES
                          |                           +-> allocated meanwhile --+
                          +-> allocated ----------------------------------------+-> waits until the watch shows it
"""

import asyncio
from collections import Counter

from shared.errors import FlotillaError
from shared.kube.claims import ObservedClaim, list_claims, touch_claim
from shared.kube.client import KubeClient
from shared.kube.errors import Refused
from shared.messages.watch import ObjectChange
from shared.model.base import version_number

MAX_CALLS = 64
"""To the API server at the same time."""
MAX_TRIES = 3
"""Of touching an object that the API server refuses to change."""


class ClaimBarrier:
    def __init__(self, client: KubeClient, mark: str) -> None:
        """`mark`: of this term only."""
        self._client = client
        self._mark = mark
        self._shown: dict[str, str] = {}
        """The claims that the watch shows, and their versions."""
        self._fenced: set[str] = set()
        """Uids of claims that no earlier order can allocate."""
        self._refusals: Counter[str] = Counter()
        self.aside: dict[str, str] = {}
        """Claims that the API server refuses to change: their keys by uid. They are not fenced."""

    def on_watch(self, change: ObjectChange) -> None:
        """Every change of a claim, from the first one on."""
        if change.gone:
            self._shown.pop(change.key, None)
        else:
            self._shown[change.key] = change.version

    async def run(self) -> str:
        """Returns what keeps the term from beginning; empty if no earlier order can allocate a claim any more.

        It is then to be run again, as when it raises FlotillaError: the API server does not answer, or refuses.
        """
        found = [claim async for claim in list_claims(self._client) if claim.uid not in self.aside]
        allocated = [claim for claim in found if claim.is_allocated]
        allocated += await self._touch(
            [claim for claim in found if not claim.is_allocated and claim.uid not in self._fenced]
        )
        unseen = [claim.key for claim in allocated if not self._is_shown(claim)]
        return f"the watch does not show yet that {len(unseen):,} claims are allocated" if unseen else ""

    async def _touch(self, waiting: list[ObservedClaim]) -> list[ObservedClaim]:
        """Returns those that are allocated now. Refusals do not keep others from being touched."""
        allocated: list[ObservedClaim] = []
        failures: list[FlotillaError] = []
        refusals: list[FlotillaError] = []

        async def work() -> None:
            while waiting and not failures:
                claim = waiting.pop()
                try:
                    touched = await touch_claim(self._client, claim.key, claim.uid, self._mark)
                except FlotillaError as cause:
                    if not (isinstance(cause, Refused) and cause.is_final):
                        failures.append(cause)
                    elif not self._set_aside(claim):
                        refusals.append(cause)
                    continue
                if touched is not None and touched.is_allocated:
                    allocated.append(touched)
                else:
                    self._fenced.add(claim.uid)

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(MAX_CALLS, len(waiting))):
                workers.create_task(work())
        if failures or refusals:
            raise (failures or refusals)[0]
        return allocated

    def _set_aside(self, claim: ObservedClaim) -> bool:
        """Whether the API server has refused to change the claim often enough."""
        self._refusals[claim.uid] += 1
        if self._refusals[claim.uid] < MAX_TRIES:
            return False
        self.aside[claim.uid] = claim.key
        return True

    def _is_shown(self, claim: ObservedClaim) -> bool:
        shown = self._shown.get(claim.key, "")
        return shown == claim.version or 0 < version_number(claim.version) <= version_number(shown)
