"""Anonymized recordings: no name is left, and everything is decided alike."""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.nodetable import shard_of, stable_hash
from shared.errors import UserError
from shared.messages.evaluation import Ties
from shared.messages.recording import ClassDecided, DeciderShown, PodDecided, PodsShown, RecordedPod, RoundDecided
from shared.messages.state import Change, Delta, ObjectRemoved, ObjectUpserted
from shared.model.objects import ClusterObject, ObjectKind, encode_msgpack, object_from, pod_from_msgpack
from testing.builders import pod
from testing.inprocess.batches import queued_pod
from tests.replay import acme
from tests.replay.test_replay import no_difference, preempting
from tools.cli.main import main
from tools.recording.anonymize import KEPT, WORD, Pseudonyms
from tools.recording.file import Entry, Gap, Header, RecordingReader
from tools.recording.recorder import AnonymousFile
from tools.recording.without_devices import WHY
from tools.recording.words import WORDS
from tools.replay.replay import Comparison, Replay

ROOT = Path(__file__).parents[2]
NAMED = {"labels", "annotations", "matchLabels", "nodeSelector", "requests", "limits", "allocatable", "capacity"}
"""Maps in which names are keys."""
TAGS = {each.__struct_config__.tag for each in (*get_args(Entry), *get_args(Change), *get_args(ClusterObject))}
TAGS |= {version("flotilla")}


def anonymous(entries: Iterable[Entry], path: Path) -> list[Entry]:
    """As they are in the file; nothing is on the disk before it is complete."""
    file = AnonymousFile(path, 1 << 30, Header("1.0", 0.0))
    for each in entries:
        if not isinstance(each, Header):
            file.add(each)
    file.flush()
    assert path.stat().st_size == 0
    file.close()
    assert file.size == path.stat().st_size
    return list(RecordingReader(path).entries())


def texts(value: Any, keys: bool = True) -> Iterator[str]:
    """All texts in what a file has, decoded without a type. `keys`: of maps, too, most of which are names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from [key] if keys else []
            yield from texts(each, keys or key in NAMED)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, keys)


def plain(entries: Iterable[Entry]) -> Any:
    return [msgspec.msgpack.decode(encode_msgpack(each)) for each in entries if not isinstance(each, Header | Gap)]


def replayed(entries: Sequence[Entry], shards: int | None = None) -> Comparison:
    found = Replay(shards).take_all(entries)
    no_difference(found)
    return found


@pytest.mark.parametrize(("shards", "round_size"), [(2, 8), (3, 1)])
def test_no_invented_name_is_left(shards: int, round_size: int, tmp_path: Path) -> None:
    entries = acme.recorded(7, shards, round_size)
    before = replayed(entries)
    reasons = {pod.reason for each in entries if isinstance(each, RoundDecided) for pod in each.pods}
    assert any("acme" in each for each in reasons)
    assert {"placed", "unfit", "nominated"} <= before.verdicts.keys()
    assert before.decisions > 50
    made = anonymous(entries, tmp_path / "r")
    assert [each for each in texts(plain(made)) if acme.MARK in each.lower()] == []
    assert replayed(made).verdicts == before.verdicts
    if round_size == 1:
        assert replayed(made, 2).verdicts == before.verdicts


def test_a_run_over_a_bad_wire(tmp_path: Path) -> None:
    entries = preempting(2, 3)
    before = replayed(entries)
    assert replayed(anonymous(entries, tmp_path / "r")).verdicts == before.verdicts


@pytest.mark.parametrize("name", ["demo", "gangs-and-spreading"])
def test_recordings_of_real_pipelines(name: str, tmp_path: Path) -> None:
    entries = list(RecordingReader(ROOT / "tests" / "recordings" / f"{name}.rec").entries())
    made = anonymous(entries, tmp_path / "r")
    invented = {word for text in texts(plain(entries), keys=False) if not is_kept(text) for word in WORD.findall(text)}
    left = {word for text in texts(plain(made)) for word in WORD.findall(text)}
    assert len(invented) > 100
    assert {word for word in invented - TAGS if not is_kept(word)} & left == set()
    found = Replay().take_all(made)
    assert not found.differences, "\n".join(each.text() for each in found.differences[:5])
    assert not found.incomparable


def is_kept(text: str) -> bool:
    return text in WORDS or bool(KEPT.fullmatch(text))


ONE_WORD = re.compile(r"[A-Za-z0-9]([._-]?[A-Za-z0-9])*")
INVENTED = st.text("aA01z.-_", min_size=1, max_size=6).filter(lambda text: bool(ONE_WORD.fullmatch(text)))
NAMES = st.one_of(st.sampled_from(sorted(WORDS)), INVENTED)


@settings(deadline=None, max_examples=30)
@given(st.sets(NAMES, min_size=2, max_size=40))
def test_pseudonyms_keep_the_order_and_kept_words_stay(names: set[str]) -> None:
    pseudonyms = Pseudonyms()
    numbered = {name: str(number) for number, name in enumerate(names)}
    entry = PodsShown(1, "cycle", 1, [RecordedPod("u", queued_pod(pod("p").label(numbered).build()))])
    pseudonyms.see(entry)
    pseudonyms.settle()
    made = pseudonyms.of(entry)
    assert isinstance(made, PodsShown)
    by_number = {number: name for name, number in pod_from_msgpack(made.pods[0].queued.pod).metadata.labels.items()}
    became = {name: by_number[number] for name, number in numbered.items()}
    assert sorted(names, key=became.__getitem__) == sorted(names)
    assert {name for name in names if became[name] == name} == {name for name in names if is_kept(name)}


def test_a_pseudonym_has_the_hash_of_the_name() -> None:
    name = f"n1~{stable_hash('node-1'):016x}"
    assert stable_hash(name) == stable_hash(f"0/{name}") == stable_hash("node-1")
    assert [shard_of(name, count) for count in (1, 7, 64)] == [shard_of("node-1", count) for count in (1, 7, 64)]
    assert stable_hash("n1~not-a-hash") not in {stable_hash("n1"), stable_hash("node-1")}


def test_devices_and_the_pods_that_claim_them_are_left_out(tmp_path: Path) -> None:
    device_class = object_from(
        ObjectKind.DEVICE_CLASS,
        {
            "metadata": {"name": "acme-gpu"},
            "spec": {
                "extendedResourceName": "acme.example/gpu",
                "selectors": [{"cel": {"expression": "device.driver == 'gpu.acme.example'"}}],
            },
        },
    )
    shown = [
        pod("plain").request(cpu=1),
        pod("claims").resource_claim("c", "acme-claim"),
        pod("extended").request({"acme.example/gpu": 1}),
    ]
    entries: list[Entry] = [
        Delta(1, 2, [ObjectUpserted(device_class), ObjectRemoved(ObjectKind.RESOURCE_CLAIM, "ns/acme-claim")]),
        PodsShown(1, "cycle", 1, [RecordedPod(each.build().uid, queued_pod(each.build())) for each in shown]),
        RoundDecided(
            1,
            "cycle",
            2,
            1,
            [],
            [ClassDecided("a"), ClassDecided("b"), ClassDecided("c")],
            [PodDecided(each.build().uid, i, "unfit") for i, each in enumerate(shown)],
        ),
    ]
    _, delta, pods, decided = anonymous(entries, tmp_path / "r")
    assert delta == Delta(1, 2, [])
    assert isinstance(pods, PodsShown)
    assert len(pods.pods) == 1
    assert isinstance(decided, RoundDecided)
    assert [each.incomparable for each in decided.classes] == ["", WHY, WHY]


def test_a_plugin_of_a_package_is_refused() -> None:
    config = {"profiles": [{"plugins": {"filter": {"enabled": [{"name": "AcmeFilter"}]}}}]}
    with pytest.raises(UserError, match="--anonymize: plugin AcmeFilter is of a package"):
        Pseudonyms().see(DeciderShown(1, "cycle", 1, "1.0", 1, Ties(), json.dumps(config)))


def test_it_does_not_rotate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--output", str(tmp_path / "r"), "--anonymize", "--rotate", "2"]) == 2
    assert "--anonymize writes one file at its end: it takes no --rotate" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_words_of_messages_stay() -> None:
    """Otherwise the message about a pod comes out differently. `words.py` has them; keys that the code knows, too."""
    assert {word for word in spoken() if not is_kept(word)} == set()


def spoken() -> Iterator[str]:
    for folder in (
        "shared/plugins",
        "shared/framework",
        "shared/devices",
        "services/cycle/round",
        "services/cycle/preemption",
    ):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            documentation = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
            for each in ast.walk(tree):
                if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in documentation:
                    is_known = " " in each.value or re.fullmatch(
                        r"[\w.-]*(\.csi\.|k8s\.io|kubernetes\.io)[\w./-]*", each.value
                    )
                    yield from WORD.findall(each.value) if is_known else []
