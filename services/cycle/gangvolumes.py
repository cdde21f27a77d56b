"""Claims and volumes that members of a gang are given while it is being decided.

The snapshot takes a gang whole or not at all, so no two decisions of it may be about the same claim or volume, unless
the later one was judged with the earlier one in place and says the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from services.cycle.race import Rung
from shared.cluster.volumes import VolumeDecision

_Claim = tuple[str, str]


class Promised:
    def __init__(self, before: Iterable[Rung]) -> None:
        """`before`: what was decided in earlier steps, and was in place when the present one was judged."""
        self._known = {about: what for rung in before for about, what in _promises(rung)}
        self._new: set[_Claim] = set()
        self._over: set[str] = set()

    def allows(self, class_id: str, rung: Rung) -> bool:
        """Whether this placement can stand beside those allowed so far; if not, nor can any more of its class."""
        if class_id in self._over:
            return False
        promises = dict(_promises(rung))
        new = promises.items() - self._known.items()
        if any(about in self._new or about in self._known for about, _ in new):
            self._over.add(class_id)
            return False
        self._new |= {about for about, _ in new}
        return True


def bindings_of(rungs: Iterable[Rung]) -> dict[str, str]:
    """By claim, the volumes that are given."""
    return {claim: volume for rung in rungs if rung.volumes is not None for claim, volume in rung.volumes.bindings}


def with_bindings(rung: Rung, claims: Iterable[str], given: Mapping[str, str]) -> Rung:
    """The placement of a pod with these claims, with the volumes that others have been given for them.

    When the pod was judged, such a claim was taken to have its volume; it has yet to be waited for.
    """
    volumes = rung.volumes or VolumeDecision()
    known = {claim for claim, _ in volumes.bindings}
    shared = [(claim, given[claim]) for claim in claims if claim in given and claim not in known]
    if not shared:
        return rung
    return replace(rung, volumes=msgspec.structs.replace(volumes, bindings=[*volumes.bindings, *shared]))


def _promises(rung: Rung) -> Iterator[tuple[_Claim, str]]:
    if rung.volumes is None:
        return
    for claim, volume in rung.volumes.bindings:
        yield ("claim", claim), volume
        yield ("volume", volume), claim
    for claim in rung.volumes.provisions:
        yield ("claim", claim), f"made for {rung.node}"
