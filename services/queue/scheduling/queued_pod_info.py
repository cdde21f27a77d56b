"""What the queue knows of one pod."""

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from services.queue.likeness import likeness
from services.queue.places import Place
from shared.framework.profile import Framework
from shared.messages.queue import ForgottenPod
from shared.model.objects import Pod

LONGEST_STORY = 16


@dataclass(slots=True, eq=False)
class Entry:
    """Changed by the core alone; `place` always names the one holding that has it."""

    uid: str
    pod: Pod
    """The newest version, also while an older one is in flight."""
    framework: Framework
    seen_at: float
    size: int = 0
    """Bytes it takes in a message, as far as known."""
    place: Place = Place.NEW

    queued_at: float = 0.0
    """When it came, or came back from a failed attempt; with the priority it decides the order."""
    order: int = 0
    """Tells apart what was queued at the same time."""
    rank: Any = ()
    """Its place in queue order: the profile's sort key, then `order`."""
    ticket: Any = None
    """Which item of a heap stands for it."""
    active_at: float | None = None
    """When it was active for the first time: what its gates cost does not count as scheduling."""
    deadline: float = 0.0

    attempts: int = 0
    """How often it was handed out."""
    rejections: int = 0
    errors: int = 0
    """In a row; a rejection ends the row."""
    backoff_until: int = -1
    """The whole second through which it still backs off."""
    flushed: bool = False
    """Its last move was for no reason but the time limit."""
    said: str = ""
    """What its last failed attempt came to, and when."""
    said_at: float | None = None

    plugins: tuple[str, ...] = ()
    """Those that rejected it last, and the one that gates it."""
    pending: tuple[str, ...] = ()
    """Those that rejected it last and only wait for something: when that comes, it need not rest."""
    gate: str | None = None
    """The plugin that gates it; empty where a PreEnqueue plugin broke down."""
    group: Any = None
    """With which others it waits."""

    taken: Pod | None = None
    """The version that was handed out."""
    node: str = ""
    """Where it was decided to go."""
    term: int = 0
    """The snapshot's when it was taken; 0: not known."""
    touched: bool = False
    """Something has happened to itself since it was taken."""
    forgotten: ForgottenPod | None = None
    """Its binding has failed, and only then will be heard that it was decided."""

    story: list[float | str] = field(default_factory=list)
    """When, to which place and why, one after another: flat, as tens of thousands of them are kept."""
    _likeness: tuple[bool, bytes] | None = None

    @property
    def likeness(self) -> bytes:
        """Equal for pods that the same events help."""
        whole = not self.framework.tells_apart.isdisjoint(self.rejectors)
        if self._likeness is None or self._likeness[0] != whole:
            self._likeness = whole, likeness(self.pod, whole=whole)
        return self._likeness[1]

    @property
    def rejectors(self) -> tuple[str, ...]:
        """All plugins that keep it from being tried, each once."""
        return tuple(dict.fromkeys((*self.plugins, *self.pending))) if self.pending else self.plugins

    def renew(self, pod: Pod, size: int) -> None:
        """A newer version of the pod."""
        self.pod, self.size, self._likeness = pod, size, None

    def assumed(self) -> Pod | None:
        """The pod as it was decided, with its node; None if that is not known."""
        pod = self.taken or self.pod
        return replace(pod, spec=replace(pod.spec, node_name=self.node)) if self.node else None

    def tell(self, now: float, place: Place, why: str) -> None:
        story = self.story
        story += (now, place, why)
        if len(story) > 3 * LONGEST_STORY:
            del story[:3]

    def told(self) -> str:
        story = self.story
        moves = zip(story[::3], story[1::3], story[2::3], strict=True)
        return "; ".join(f"{at:.3f} {place} ({why})" for at, place, why in moves) or "nothing yet"
