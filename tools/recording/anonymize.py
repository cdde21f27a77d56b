"""Pseudonyms: every name in a recording becomes another one, and it is decided alike all the same.

A decision compares texts, orders them, and breaks ties by hashes of the names of nodes, the uids of pods and the ids of
classes. So

- texts are taken apart at punctuation, and a word becomes the same pseudonym wherever it stands: a label's value in the
  node, in a selector and in a message;
- pseudonyms stand in the order of the words that they replace, and among the words that stay;
- behind a tilde, pseudonyms that ties are broken by say the hash of the name that they stand for (`stable_hash`).

What stays: numbers, quantities and times, and the words of Kubernetes and of Flotilla's messages (words.py).
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from shared.cluster.nodetable import stable_hash
from shared.config.points import EVERY_PLUGIN
from shared.errors import UserError
from shared.messages.queue import QueuedPod
from shared.messages.recording import ClassDecided, DeciderShown, PodDecided, RecordedPod
from shared.messages.state import NodeState, NodeUpserted
from shared.model.objects import Pod, encode_msgpack, pod_from_msgpack
from shared.plugins.registry import in_tree
from shared.plugins.volumes.migration import BETWEEN_ZONES
from tools.recording.claim_contents import ClaimContents
from tools.recording.file import Entry, Gap, Header
from tools.recording.words import WORDS

WORD = re.compile(r"\w(?:[\w.-]*\w)?")
KEPT = re.compile(
    r"[+-]?\d+(\.\d+)?([eE][+-]?\d+|[numkMGTPE]i?|Ki)?"  # numbers and quantities
    r"|\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)"  # times
    r"|hugepages-\d+[KMG]i"
)
BELOW = "!"
"""Comes before every character that a name may have: a kept word, this and a number come right behind that word."""
CONFIG = ("apiVersion", "kind", "percentageOfNodesToScore", "profiles")
"""What a decision takes of a configuration file. Extenders are not asked in a replay."""
CONFIG_WORDS = WORDS | {"kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration", "System", "List"}
CONFIG_WORDS |= {"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"}
LABELS = frozenset({"matchLabels", "nodeSelector"})
"""Parts of a configuration whose keys are not names of fields."""

Text = Callable[[str], str]


class Pseudonyms:
    """First `see` every entry, then `settle`, then `of` gives each entry with its pseudonyms. None has devices."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        """Texts that were taken apart."""
        self._words: set[str] = set()
        self._said: set[str] = set()
        """Words of messages."""
        self._nodes_and_pods: set[str] = set()
        """Those whose hashes break ties."""
        self._ephemeral: dict[str, tuple[str, str]] = {}
        """Names of claims that are made of a pod's and a volume's."""
        self._classes: dict[str, str] = {}
        self._seed = 0
        self._pseudonyms: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._contents = ClaimContents()

    def see(self, entry: Entry) -> None:
        """UserError if it cannot be made anonymous."""
        if isinstance(entry, DeciderShown):
            self._seed = entry.ties.seed
        self._walk(entry, self._see)

    def settle(self) -> None:
        kept = sorted(filter(_is_kept, self._words))
        names = sorted(word for word in self._words | self._said if not _is_kept(word))
        digits = len(str(len(names)))
        self._pseudonyms = _in_order(names, kept, digits)
        while not self._pseudonyms.keys().isdisjoint(self._pseudonyms.values()):  # none should be a name that was there
            digits += 1
            self._pseudonyms = _in_order(names, kept, digits)
        for name in self._nodes_and_pods:
            if (pseudonym := self._text(name)) != name:
                self._texts[name] = f"{pseudonym}~{stable_hash(name):016x}"
        for claim, (pod, volume) in self._ephemeral.items():
            self._texts[claim] = f"{self._text(pod)}-{self._text(volume)}"

    def of(self, entry: Entry) -> Entry:
        changed: Entry = self._walk(entry, self._text)
        return self._contents.of(changed)

    # Inside

    def _see(self, text: str) -> str:
        if text not in self._seen:
            self._seen.add(text)
            self._words.update(_words(text))
        return text

    def _hear(self, text: str) -> str:
        """In a message, words that stay are nothing that is compared."""
        self._said.update(_words(text))
        return text

    def _text(self, text: str) -> str:
        found = self._texts.get(text)
        if found is None:
            parts = () if KEPT.fullmatch(text) else text.split(BETWEEN_ZONES)
            found = BETWEEN_ZONES.join(WORD.sub(self._replaced, part) for part in parts) or text
            self._texts[text] = found
        return found

    def _replaced(self, word: re.Match[str]) -> str:
        return word[0] if _is_kept(word[0]) else self._pseudonyms[word[0]]

    def _class(self, class_id: str) -> str:
        """An id of the same hash together with the seed."""
        number = self._classes.setdefault(class_id, str(len(self._classes)))
        return f"class-{number}~{stable_hash(f'{self._seed}/{class_id}'):016x}"

    def _walk(self, value: Any, text: Text) -> Any:
        message = self._hear if text == self._see else text
        match value:
            case str():
                return text(value) if type(value) is str else value
            case Header() | Gap() | None | int() | float() | bytes():
                return value
            case DeciderShown():
                config, cycle, recording = _config(value.config, text), text(value.cycle), text(value.recording)
                return msgspec.structs.replace(value, config=config, cycle=cycle, recording=recording)
            case ClassDecided():
                unfit = message(value.unfit)
                return msgspec.structs.replace(value, class_id=self._class(value.class_id), unfit=unfit)
            case PodDecided():
                rest = self._struct(msgspec.structs.replace(value, reason=""), text)
                return msgspec.structs.replace(rest, reason=message(value.reason))
            case RecordedPod():
                return RecordedPod(text(value.uid), self._queued(value.queued, text))
            case NodeState() | NodeUpserted():
                self._nodes_and_pods.add(value.node.name)
        if isinstance(value, msgspec.Struct):
            return self._struct(value, text)
        if isinstance(value, dict):
            return {self._walk(key, text): self._walk(each, text) for key, each in value.items()}
        return type(value)(self._walk(each, text) for each in value)

    def _struct(self, value: msgspec.Struct, text: Text) -> msgspec.Struct:
        changed: dict[str, Any] = {}
        for name in value.__struct_fields__:
            was = getattr(value, name)
            now = self._walk(was, text)
            if now is not was and now != was:
                changed[name] = now
        return msgspec.structs.replace(value, **changed) if changed else value

    def _queued(self, queued: QueuedPod, text: Text) -> QueuedPod:
        pod = pod_from_msgpack(queued.pod)
        self._nodes_and_pods.add(pod.uid)
        self._ephemeral |= _ephemeral_claims(pod)
        gang, volumes = self._walk(queued.gang, text), self._walk(queued.volumes, text)
        body = encode_msgpack(self._struct(pod, text))
        return msgspec.structs.replace(queued, pod=msgspec.Raw(body), gang=gang, volumes=volumes)


def _ephemeral_claims(pod: Pod) -> dict[str, tuple[str, str]]:
    return {
        f"{pod.name}-{volume.name}": (pod.name, volume.name)
        for volume in pod.spec.volumes
        if volume.ephemeral is not None
    }


def _words(text: str) -> Iterator[str]:
    if KEPT.fullmatch(text):
        yield text
        return
    for part in text.split(BETWEEN_ZONES):
        yield from WORD.findall(part)


def _is_kept(word: str) -> bool:
    return word in WORDS or bool(KEPT.fullmatch(word))


def _in_order(names: Sequence[str], kept: Sequence[str], digits: int) -> dict[str, str]:
    """Pseudonyms that stand like the names among what is kept; all of them sorted."""
    found: dict[str, str] = {}
    for number, name in enumerate(names):
        at = bisect_right(kept, name)
        stem = _between(kept[at - 1] if at else "", kept[at] if at < len(kept) else "")
        found[name] = f"{stem}{number:0{digits}}"
    return found


def _between(low: str, high: str) -> str:
    """A short text that is above `low` and, with digits behind it, below `high`; an empty `high` is above all."""
    for size in range(1, len(high)):
        if high[:size] > low and high[size] > "9":
            return high[:size]
    for at, char in enumerate(low):
        above = low[:at] + chr(ord(char) + 1)
        if above[-1].isalnum() and (not high or f"{above}~" < high):
            return above
    return low + BELOW


def _config(text: str, word: Text) -> str:
    """The parts of the configuration that decide. UserError if a plugin of a package is among them."""
    if not text:
        return ""
    document = json.loads(text)
    plugins = in_tree()
    for name in _plugins(document):
        if name not in plugins and name != EVERY_PLUGIN:
            raise UserError(f"--anonymize: plugin {name} is of a package, which may decide by anything")

    def walk(value: Any, is_name: bool = False) -> Any:
        match value:
            case dict():
                return {word(key) if is_name else key: walk(each, key in LABELS) for key, each in value.items()}
            case list():
                return [walk(each) for each in value]
            case str():
                return value if value in CONFIG_WORDS or value in plugins or value == EVERY_PLUGIN else word(value)
        return value

    return json.dumps({key: walk(value) for key, value in document.items() if key in CONFIG})


def _plugins(document: dict[str, Any]) -> Iterator[str]:
    """Those that profiles name."""
    for profile in document.get("profiles") or ():
        for points in (profile.get("plugins") or {}).values():
            for plugins in (points or {}).values():
                yield from (each["name"] for each in plugins or ())
        yield from (each["name"] for each in profile.get("pluginConfig") or ())
