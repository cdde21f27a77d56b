"""Talks with a real extender: deadlines, bounds, bad answers, TLS."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from shared.config.structs import ExtenderTls
from shared.errors import UserError
from shared.extenders.client import MAX_IN_FLIGHT, ExtenderClient
from shared.extenders.talk import ExtenderFailed, Judgement, Subject, bind, judge, preempt
from shared.extenders.wire import ExtenderVictim, Victims, bind_request
from tests.certificates import make_authority, make_certificate
from tests.extenders.server import Extender, a_client, an_extender, slowly

pytestmark = pytest.mark.asyncio

POD = b'{"metadata":{"name":"p"}}'


def nodes(names: Any) -> list[bytes]:
    return [b'{"metadata":{"name":"%b"}}' % name.encode() for name in names]


async def judged(client: ExtenderClient, *names: str) -> Judgement:
    return await client.converse(judge(client.extenders, Subject(POD, nodes), names))


async def failure_of(extender: Extender, **fields: Any) -> str:
    """What an attempt fails with that asks it to filter."""
    async with a_client(extender.config(filter_verb="filter", **fields)) as client:
        judgement = await judged(client, "a", "b")
    return "" if judgement.failure is None else judgement.failure.message


# The verbs


@pytest.mark.parametrize("capable", [True, False], ids=["knows the nodes", "is sent the nodes"])
async def test_nodes_are_filtered_and_scored(capable: bool) -> None:
    async with an_extender() as extender:
        kept = {"NodeNames": ["a", "b"]} if capable else {"Nodes": {"items": [{"metadata": {"name": n}} for n in "ab"]}}
        extender.says("filter", kept | {"FailedNodes": {"c": "too far"}})
        extender.says("prioritize", [{"Host": "a", "Score": 4}])
        config = extender.config(
            filter_verb="filter", prioritize_verb="prioritize", weight=2, node_cache_capable=capable
        )
        async with a_client(config) as client:
            judgement = await judged(client, "a", "b", "c")
        assert judgement.added == {"a": 80, "b": 0}
        assert judgement.rejected["c"].reasons == ("too far",)
        (asked,) = extender.requests("filter")
        assert (asked["NodeNames"] is None, asked["Nodes"] is None) == (not capable, capable)


async def test_a_pod_is_bound_or_it_is_said_why_not() -> None:
    async with an_extender() as extender:
        extender.says("bind", {})
        config = extender.config(bind_verb="bind")
        body = bind_request("ns", "p", "u", "a")
        async with a_client(config) as client:
            await client.converse(bind(config, body))
            extender.says("bind", {"Error": "the node is gone"})
            with pytest.raises(ExtenderFailed, match=r"^the node is gone$") as refused:
                await client.converse(bind(config, body))
            assert not refused.value.maybe_done
            extender.says("bind", web.Response(status=500))
            with pytest.raises(ExtenderFailed, match="code 500") as failed:
                await client.converse(bind(config, body))
            assert failed.value.maybe_done
        assert extender.requests("bind")[0] == {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "a"}


async def test_candidates_of_a_preemption_are_reduced() -> None:
    async with an_extender() as extender:
        extender.says("preempt", {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}})
        candidates = {"a": Victims((ExtenderVictim("u", POD),)), "b": Victims((ExtenderVictim("v", POD),))}
        async with a_client(extender.config(preempt_verb="preempt", node_cache_capable=False)) as client:
            reduced = await client.converse(preempt(client.extenders, POD, candidates))
        assert reduced.candidates == {"a": candidates["a"]}
        assert extender.requests("preempt")[0]["NodeNameToVictims"]["b"]["Pods"] == [{"metadata": {"name": "p"}}]


async def test_a_slash_at_the_end_of_the_url_does_not_matter() -> None:
    async with an_extender() as extender:
        extender.says("filter", {"NodeNames": ["a"]})
        assert await failure_of(extender, url_prefix=extender.url + "//") == ""


async def test_a_verb_cannot_become_a_header() -> None:
    async with an_extender() as extender:
        extender.says("fil\r\nter: x", {"NodeNames": ["a"]})
        async with a_client(extender.config(filter_verb="fil\r\nter: x")) as client:
            judgement = await judged(client, "a", "b")
        assert judgement.failure is None
        assert len(extender.requests("fil\r\nter: x")) == 1


# Failures


async def test_an_answer_that_takes_too_long_is_none() -> None:
    async with an_extender() as extender:
        extender.answers["filter"] = lambda body: slowly({"NodeNames": ["a"]})
        assert (
            await failure_of(extender, http_timeout=0.1) == f"extender {extender.url}: filter: no answer within 0.1 s"
        )


async def test_an_extender_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/scheduler"
    extender = Extender()
    extender.url = url
    assert (await failure_of(extender)).startswith(f"extender {url}: filter: cannot be reached: Connection refused")
    config = extender.config(bind_verb="bind")
    async with a_client(config) as client:
        with pytest.raises(ExtenderFailed) as failed:
            await client.converse(bind(config, b"{}"))
        assert not failed.value.maybe_done
        ignored = extender.config(filter_verb="filter", ignorable=True)
    async with a_client(ignored) as client:
        judgement = await judged(client, "a", "b")
    assert (judgement.added, len(judgement.troubles)) == ({"a": 0, "b": 0}, 1)


async def test_a_proxy_that_refuses_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://me:hush@127.0.0.1:{port}")
        extender = Extender()
        extender.url = "https://extender.invalid/scheduler"
        said = await failure_of(extender)
    assert "the proxy says 407 Who are you" in said
    assert "hush" not in said


async def test_any_status_but_200_is_a_failure() -> None:
    async with an_extender() as extender:
        extender.says("filter", web.Response(status=503))
        url = f"{extender.url}/filter"
        assert await failure_of(extender) == f"failed filter with extender at URL {url}, code 503"
        extender.says("filter", web.Response(status=307, headers={"Location": url}))
        assert await failure_of(extender) == f"failed filter with extender at URL {url}, code 307"


async def test_an_answer_that_is_not_json_is_a_failure() -> None:
    async with an_extender() as extender:
        extender.says("filter", b"<html>")
        assert (await failure_of(extender)).startswith(
            f"extender {extender.url}: filter: the answer: JSON is malformed"
        )


async def test_an_answer_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.extenders.client.MAX_ANSWER_BYTES", 1 << 20)
    async with an_extender() as extender:
        extender.says("filter", b" " * (1 << 22))
        limit = 1 << 20
        told = f"extender {extender.url}: filter: the answer is longer than {limit} bytes"
        assert await failure_of(extender) == told


async def test_the_number_of_requests_under_way_is_bounded() -> None:
    async with an_extender() as extender:

        def answer(body: dict[str, Any]) -> Any:
            return slowly({"NodeNames": ["a"]}, 0.02)

        extender.answers["filter"] = answer
        async with a_client(extender.config(filter_verb="filter")) as client:
            judgements = await asyncio.gather(*(judged(client, "a") for _ in range(3 * MAX_IN_FLIGHT)))
        assert all(judgement.added == {"a": 0} for judgement in judgements)
        assert 1 < extender.most_under_way <= MAX_IN_FLIGHT


# TLS


def server_context(folder: Path, *, ask_for_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    if ask_for_certificate:
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def certificates(folder: Path) -> None:
    make_authority(folder)
    make_certificate(folder, "server", "extender.test", names_keys=False)
    make_certificate(folder, "client", "scheduler.test")


@pytest.mark.parametrize("by_data", [True, False], ids=["data", "files"])
async def test_both_sides_prove_who_they_are(tmp_path: Path, by_data: bool) -> None:
    certificates(tmp_path)
    files = {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
    given: dict[str, Any] = (
        {f"{what}_data": (tmp_path / name).read_bytes() for what, name in files.items()}
        if by_data
        else {f"{what}_file": str(tmp_path / name) for what, name in files.items()}
    )
    async with an_extender(server_context(tmp_path, ask_for_certificate=True)) as extender:
        extender.says("filter", {"NodeNames": ["a"]})
        tls = ExtenderTls(server_name="extender.test", **given)
        assert await failure_of(extender, enable_https=True, tls=tls) == ""


async def test_a_server_that_cannot_prove_itself_is_not_believed(tmp_path: Path) -> None:
    certificates(tmp_path)
    authority = str(tmp_path / "ca.pem")
    async with an_extender(server_context(tmp_path)) as extender:
        extender.says("filter", {"NodeNames": ["a"]})
        refused = f"extender {extender.url}: filter: cannot be reached: "
        assert (await failure_of(extender)).startswith(refused), "no authority that we know"
        wrong = ExtenderTls(ca_file=authority, server_name="other.test")
        assert (await failure_of(extender, tls=wrong)).startswith(refused), "another name"
        assert await failure_of(extender, tls=ExtenderTls(insecure=True)) == ""
        assert await failure_of(extender, enable_https=True) == "", "without an authority nothing is verified"


async def test_certificates_that_cannot_be_used_are_told_at_once(tmp_path: Path) -> None:
    certificates(tmp_path)
    (tmp_path / "bad.pem").write_text("no certificate")
    bad = [
        (ExtenderTls(ca_file=str(tmp_path / "none.pem")), "none.pem: No such file or directory"),
        (ExtenderTls(ca_data=b"x"), ""),
        (ExtenderTls(insecure=True, ca_file="x"), "insecure, and a certificate authority"),
        (ExtenderTls(cert_file=str(tmp_path / "client.pem")), "a client certificate and its key are needed together"),
        (
            ExtenderTls(cert_file=str(tmp_path / "bad.pem"), key_file=str(tmp_path / "client.key")),
            "the certificates cannot be used",
        ),
    ]
    for tls, reason in bad:
        with pytest.raises(UserError, match=f"^extender https://x: tlsConfig: .*{reason}"):
            ExtenderClient([Extender().config(url_prefix="https://x", tls=tls)])


async def test_a_url_that_is_none_is_told_at_once() -> None:
    with pytest.raises(UserError, match=r"^extender ftp://x: urlPrefix: not a URL"):
        ExtenderClient([Extender().config(url_prefix="ftp://x")])
