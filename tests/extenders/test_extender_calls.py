"""Asking extenders about a round's pods, with a real API server that has the objects."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from services.cycle.extender_calls import NODES, ExtenderCalls, FullObjects
from services.cycle.extenders import (
    SLACK,
    AskAboutVictims,
    AskExtenders,
    ExtenderQuestion,
    Extenders,
    VictimQuestion,
    VictimsAnswered,
)
from shared.config.structs import ExtenderConfig
from shared.kube.client import KubeClient
from shared.kube.listwatch import ListWatch
from shared.messages.preemption import Candidate, Victim
from shared.model.objects import Pod, decode_pod
from testing.builders import pod
from testing.simulator.service import Simulator
from tests.bus.support import a_telemetry
from tests.extenders.server import a_client, an_extender, slowly
from tests.kube.support import api_server, client_of, raw_node, raw_pod, until

pytestmark = pytest.mark.asyncio


def stored(server: Simulator, name: str, **fields: Any) -> Pod:
    """A pod with more in it than a scheduler reads."""
    raw = raw_pod(name, **fields)
    raw["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]
    raw["metadata"]["managedFields"] = [{"manager": "x"}]
    server.store_raw("pods", raw)
    return decode_pod(msgspec.json.encode(raw))


@asynccontextmanager
async def watched(client: KubeClient) -> AsyncIterator[FullObjects]:
    objects = FullObjects(client)
    watching = asyncio.create_task(ListWatch(client, NODES, objects.hear, random.Random(1)).run())
    try:
        yield objects
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


@asynccontextmanager
async def asking(
    client: KubeClient, *extenders: ExtenderConfig
) -> AsyncIterator[tuple[ExtenderCalls, list[Any], list[str]]]:
    answered: list[Any] = []
    troubles: list[str] = []
    async with watched(client) as objects, a_client(*extenders) as extender_client:
        asking = ExtenderCalls(extender_client, objects, answered.append, troubles.append, a_telemetry().fault)
        try:
            yield asking, answered, troubles
        finally:
            await asking.close()


async def test_extenders_are_sent_whole_objects() -> None:
    async with api_server() as server, client_of(server) as client, an_extender() as extender:
        node = raw_node("a")
        node["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.0"}
        node["metadata"]["managedFields"] = [{"manager": "kubelet"}]
        server.store_raw("nodes", node)
        server.store_raw("nodes", raw_node("b"))
        extender.says("filter", {"Nodes": {"items": [node]}, "FailedNodes": {"b": "no"}})
        config = extender.config(filter_verb="filter", node_cache_capable=False)
        async with asking(client, config) as (asks, answered, troubles):
            assert asks.sends_nodes
            asks.ask(AskExtenders(3, 1, (ExtenderQuestion("c", stored(server, "p"), ("a", "b", "not-there")),)))
            await until(lambda: answered)
        (answer,) = answered
        assert (answer.round, answer.ask) == (3, 1)
        assert answer.judgements["c"].added == {"a": 0}
        (request,) = extender.requests("filter")
        assert [item["metadata"]["name"] for item in request["Nodes"]["items"]] == ["a", "b"]
        assert request["Nodes"]["items"][0]["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.0"
        assert "managedFields" not in request["Nodes"]["items"][0]["metadata"]
        assert request["Pod"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
        assert "managedFields" not in request["Pod"]["metadata"]
        assert troubles == []


async def test_nodes_are_as_they_are_now() -> None:
    async with api_server() as server, client_of(server) as client, watched(client) as objects:
        server.store_raw("nodes", raw_node("a"))
        await objects.wait_for(["a"])
        await client.call(
            "PATCH", f"{NODES}/a", b'{"metadata":{"labels":{"x":"y"}}}', content_type="application/merge-patch+json"
        )
        await until(lambda: b'"y"' in objects.nodes(["a"])[0])
        server.store_raw("nodes", raw_node("b"))
        await objects.wait_for(["a", "b"])
        await client.call("DELETE", f"{NODES}/a")
        await until(lambda: objects.nodes(["a"]) == [])
        assert len(objects.nodes(["b", "a"])) == 1


async def test_a_pod_that_is_another_by_now_is_told_of_as_it_was_known() -> None:
    async with api_server() as server, client_of(server) as client:
        objects = FullObjects(client)
        stored(server, "p")
        other = pod("p").uid("other").label(app="x").build()
        for gone in (other, pod("nobody").build()):
            told = msgspec.json.decode(await objects.pod(gone))
            assert told["metadata"]["name"] == gone.name
        server.faults.fail("GET", "pods", 403)
        assert msgspec.json.decode(await objects.pod(other))["metadata"]["labels"] == {"app": "x"}


async def test_all_pods_of_a_round_are_asked_about_at_the_same_time() -> None:
    async with api_server() as server, client_of(server) as client, an_extender() as extender:
        gathered = asyncio.Event()

        async def answer(body: dict[str, Any]) -> object:
            if extender.under_way == 20:
                gathered.set()
            await gathered.wait()
            return {"NodeNames": [body["Pod"]["metadata"]["name"]]}

        extender.answers["filter"] = answer
        names = tuple(f"p{i}" for i in range(20))
        questions = tuple(ExtenderQuestion(name, stored(server, name), names) for name in names)
        async with asking(client, extender.config(filter_verb="filter")) as (asks, answered, _):
            assert not asks.sends_nodes
            asks.ask(AskExtenders(1, 1, questions))
            await until(lambda: answered)
        assert {name: list(found.added) for name, found in answered[0].judgements.items()} == {n: [n] for n in names}


async def test_only_those_that_are_interested_are_asked_and_failures_are_told() -> None:
    async with api_server() as server, client_of(server) as client, an_extender() as extender:
        extender.says("filter", b"nonsense")
        lenient = extender.config(filter_verb="filter", ignorable=True)
        async with asking(client, lenient) as (asks, answered, troubles):
            asks.ask(AskExtenders(1, 1, (ExtenderQuestion("c", stored(server, "p"), ("a",)),)))
            await until(lambda: answered)
        assert answered[0].judgements["c"].added == {"a": 0}
        assert len(troubles) == 1


async def test_a_newer_question_ends_the_one_before() -> None:
    async with api_server() as server, client_of(server) as client, an_extender() as extender:
        extender.answers["filter"] = lambda body: slowly({"NodeNames": ["a"]})
        async with asking(client, extender.config(filter_verb="filter")) as (asks, answered, _):
            question = ExtenderQuestion("c", stored(server, "p"), ("a",))
            asks.ask(AskExtenders(1, 1, (question,)))
            await until(lambda: extender.asked)
            extender.says("filter", {"NodeNames": ["a"]})
            asks.ask(AskExtenders(1, 2, (question,)))
            await until(lambda: answered)
        assert [(answer.round, answer.ask) for answer in answered] == [(1, 2)]


# Victims


def candidate(node: str, *names: str) -> Candidate:
    return Candidate(node, [Victim(f"uid-{name}", f"default/{name}", 5, violates=name == "a0") for name in names])


CANDIDATES = (candidate("a", "a0", "a1"), candidate("b", "b0"), candidate("c", "c0"))


async def test_extenders_reduce_candidates_and_see_whole_victims() -> None:
    async with api_server() as server, client_of(server) as client, an_extender() as extender:
        pod = stored(server, "p")
        for each in CANDIDATES:
            for victim in each.victims:
                stored(server, victim.key.partition("/")[2])
        left = {"a": {"Pods": [{"UID": "uid-a1"}], "NumPDBViolations": 0}, "c": {"Pods": [{"UID": "uid-c0"}]}}
        extender.says("preempt", {"NodeNameToMetaVictims": left})
        config = extender.config(preempt_verb="preempt", node_cache_capable=False)
        async with asking(client, config) as (asks, answered, _):
            assert not asks.sends_nodes
            asks.ask(AskAboutVictims(7, (VictimQuestion("class", pod, CANDIDATES),)))
            await until(lambda: answered)
        assert answered == [VictimsAnswered(7, {"class": [candidate("a", "a1"), candidate("c", "c0")]})]
        (request,) = extender.requests("preempt")
        sent = request["NodeNameToVictims"]["a"]
        assert sent["NumPDBViolations"] == 1
        assert [pod["metadata"]["name"] for pod in sent["Pods"]] == ["a0", "a1"]
        assert sent["Pods"][0]["spec"]["containers"][0]["env"]


async def test_an_extender_that_fails_fails_the_search() -> None:
    async with api_server() as server, client_of(server) as client, an_extender() as extender:
        extender.says("preempt", b"nonsense")
        pod = stored(server, "p")
        config = extender.config(preempt_verb="preempt")
        async with asking(client, config) as (asks, answered, _):
            asks.ask(AskAboutVictims(1, (VictimQuestion("class", pod, CANDIDATES),)))
            await until(lambda: answered)
        failure = answered[0].left["class"]
        assert failure.message.startswith(f"extender {extender.url}: preempt: the answer: ")


async def test_who_is_asked_about_victims_and_for_how_long() -> None:
    one = ExtenderConfig("http://x", preempt_verb="preempt", http_timeout=1.0)
    other = ExtenderConfig("http://y", preempt_verb="preempt", http_timeout=2.0)
    question = VictimQuestion("class", pod("p").build(), CANDIDATES)
    assert Extenders([one, other]).judge_victims(question.pod)
    assert Extenders([one, other]).victim_patience([question]) == SLACK + 3.0
    assert not Extenders([ExtenderConfig("http://z", filter_verb="filter")]).judge_victims(question.pod)
