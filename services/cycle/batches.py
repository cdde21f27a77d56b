"""Takes pods from a batch of the queue: those that can be decided, and why others cannot."""

from collections.abc import Container
from typing import NamedTuple

import msgspec

from flotilla.results import error
from services.cycle.events import Failed
from services.cycle.round.admission import Admission, PodInfo, uid_of
from shared.errors import ProtocolError
from shared.messages.queue import Batch


class Admitted(NamedTuple):
    """`refused`: bodies that are no pods."""

    pods: list[PodInfo]
    failed: list[Failed]
    refused: list[ProtocolError]


def admit(batch: Batch, admission: Admission, held: Container[str], now: float) -> Admitted:
    """`held`: the pods that the cycle has already."""
    pods: dict[str, PodInfo] = {}
    failed: list[Failed] = []
    refused: list[ProtocolError] = []
    for queued in batch.pods:
        try:
            info, failure = admission.admit(batch.whole(queued), now)
        except msgspec.DecodeError as cause:
            refused.append(ProtocolError(f"the queue handed out a body that is no pod: {cause}"))
            uid = uid_of(queued.pod)
            if uid and uid not in held:
                failed.append(Failed(uid, error(str(refused[-1]))))
            continue
        if info.uid in held or info.uid in pods:
            continue
        if failure is None:
            pods[info.uid] = info
        else:
            failed.append(Failed(info.uid, failure, pod=info))
    return Admitted(list(pods.values()), failed, refused)
