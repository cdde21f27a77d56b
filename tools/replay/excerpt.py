"""The part of a recording that one pod's decision takes: a small recording by itself.

A decision depends on the states that it was judged on, its pods, and how the cycle decides. So all earlier changes are
folded into one state, and all other decisions are left out. Of a gang all steps stay, as each goes on from the one
before.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from shared.messages.recording import DeciderShown, PodsShown, RecordedPod, RoundDecided, SearchDecided
from shared.messages.state import Delta, Heartbeat, State
from shared.model.objects import DEFAULT_NAMESPACE, pod_from_msgpack
from tools.cluster_image import ClusterImage
from tools.recording.file import Entry, Header
from tools.replay.replay import Decided

Entries = Callable[[], Iterable[Entry]]
"""The entries of a recording, from the beginning."""


def excerpt(entries: Entries, pod: str) -> Iterator[Entry]:
    """The recording of the pod's first attempt: a round, and the preemption search after it. Empty if there is none.

    `pod`: its uid, or its name with or without namespace.
    """
    wanted = _decisions(entries(), pod)
    if not wanted:
        return
    uids = {each.uid for record in wanted for each in record.pods}
    gangs = [record.gang for record in wanted if isinstance(record, RoundDecided) and record.gang is not None]
    uids |= {uid for step in gangs for uid in step.pods}
    seqs = [seq for record in wanted for each in record.classes for seq in each.seqs]
    first, last = min(seqs, default=0), max(seqs, default=0)
    image: ClusterImage | None = None
    decider: DeciderShown | None = None
    beat: Heartbeat | None = None
    pods: dict[str, RecordedPod] = {}
    deltas: list[Delta] = []
    left = len(wanted)
    for entry in entries():
        match entry:
            case Header():
                yield entry
            case DeciderShown():
                decider = entry
            case State():
                image, deltas = ClusterImage(entry), []
            case Heartbeat():
                beat = entry
            case Delta() if image is not None and entry.seq == image.seq + 1 + len(deltas):
                deltas.append(entry)
                if entry.seq <= first:
                    image.apply(deltas.pop())
            case PodsShown() if left:
                pods |= {each.uid: each for each in entry.pods if each.uid in uids}
            case RoundDecided() | SearchDecided():
                left -= entry in wanted
        if not left and image is not None and image.seq + len(deltas) >= last:
            break
    if decider is not None and image is not None:
        yield decider
        yield image.state(frozenset({0}), 1)
        yield from [] if beat is None else [beat]
        yield from (each for each in deltas if each.seq <= last)
        yield PodsShown(decider.epoch, decider.cycle, decider.number, list(pods.values()))
        yield from wanted


def _decisions(entries: Iterable[Entry], pod: str) -> Sequence[Decided]:
    """The round that decides about the pod, and the search after it if it fits no node; or all steps of its gang."""
    names, uids = {pod, f"{DEFAULT_NAMESPACE}/{pod}"}, {pod}
    steps: dict[str, list[Decided]] = {}
    found: list[Decided] = []
    gang = ""
    for entry in entries:
        if isinstance(entry, PodsShown):
            uids |= {each.uid for each in entry.pods if pod_from_msgpack(each.queued.pod).key in names}
        if not isinstance(entry, RoundDecided | SearchDecided):
            continue
        verdict = next((each.verdict for each in entry.pods if each.uid in uids and each.verdict != "deferred"), "")
        if isinstance(entry, RoundDecided) and entry.gang is not None:
            key = entry.gang.key
            if entry.gang.first:
                steps[key] = []
            steps.setdefault(key, []).append(entry)
            gang = key if verdict and not found else gang
            if gang == key and entry.gang.outcome:
                return steps[key]
        elif verdict and not gang:
            if isinstance(entry, SearchDecided) or verdict != "unfit" or found:
                return [*found, entry] if isinstance(entry, SearchDecided) or not found else found
            found = [entry]
    return found or steps.get(gang, [])
