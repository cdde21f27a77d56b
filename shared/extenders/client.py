"""HTTP calls to extenders, with a deadline, a limit on concurrent calls and on the size of answers; their TLS."""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from shared.config.structs import ExtenderConfig, ExtenderTls
from shared.errors import UserError
from shared.extenders.talk import Call, ExtenderFailed, Talk, in_order, name_of, timeout_of
from shared.http.client import HttpClient
from shared.http.connecting import Route
from shared.http.errors import HttpFailure, Late
from shared.http.request import Address, RequestFormat, quoted
from shared.proxies import proxy_of_environment

T = TypeVar("T")

MAX_IN_FLIGHT = 64
"""Calls to one extender at the same time; others wait, and their time runs."""
MAX_ANSWER_BYTES = 64 << 20
"""The whole objects of 5,000 nodes come to some 50 MB."""
OK = 200
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "flotilla"}


class ExtenderClient:
    """One for a process. To be made where a loop runs; UserError names the extender that cannot be used as it is."""

    def __init__(self, extenders: Iterable[ExtenderConfig]) -> None:
        self.extenders = in_order(extenders)
        self._lines = {extender: _Line(extender) for extender in self.extenders}

    async def close(self) -> None:
        await asyncio.gather(*(line.http.close() for line in self._lines.values()))

    async def converse(self, talk: Talk[T]) -> T:
        """Holds a talk to its end, and returns what comes of it."""
        try:
            calls = next(talk)
            while True:
                calls = talk.send(await self._make(calls))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _make(self, calls: Sequence[Call]) -> Sequence[bytes | ExtenderFailed]:
        if len(calls) == 1:
            return [await self._try_call(calls[0])]
        return await asyncio.gather(*(self._try_call(call) for call in calls))

    async def _try_call(self, call: Call) -> bytes | ExtenderFailed:
        try:
            return await self._call(call)
        except ExtenderFailed as failed:
            return failed

    async def _call(self, call: Call) -> bytes:
        line = self._lines[call.extender]
        what = f"extender {line.name}: {call.verb}"
        seconds = timeout_of(call.extender)
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            answer = await line.http.request(line.request(call), deadline, limit=MAX_ANSWER_BYTES)
        except HttpFailure as cause:
            reason = f"no answer within {seconds:g} s" if isinstance(cause, Late) else str(cause)
            raise ExtenderFailed(f"{what}: {reason}", maybe_done=cause.maybe_received) from cause
        if answer.status != OK:
            where = f"{line.name.rstrip('/')}/{call.verb}"
            message = f"failed {call.verb} with extender at URL {where}, code {answer.status}"
            raise ExtenderFailed(message, maybe_done=True)
        return answer.body


class _Line:
    """What is the same in all calls to one extender."""

    def __init__(self, extender: ExtenderConfig) -> None:
        self.name = name_of(extender)
        url = extender.url_prefix.rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"extender {self.name}: urlPrefix: not a URL such as http://host:8888/scheduler")
        server, proxy = Address.of(url), proxy_of_environment(url)
        tls = tls_of(extender, self.name) if server.scheme == "https" else None
        server_name = (extender.tls.server_name or None) if extender.tls is not None else None
        route = Route(server, server_name, None if proxy is None else Address.of(proxy))
        self.http = HttpClient(route, tls, most=MAX_IN_FLIGHT, connect_patience=timeout_of(extender))
        self._format = RequestFormat(server, route.proxy, HEADERS)
        self._head = self._format.head({"Authorization": server.basic} if server.basic else {})

    def request(self, call: Call) -> bytes:
        return self._format.request("POST", quoted(f"/{call.verb}"), self._head, call.body)


def tls_of(extender: ExtenderConfig, name: str) -> ssl.SSLContext:
    """UserError names the extender and what is wrong with its certificates.

    With `enable_https` and no certificate authority nothing is verified: so it is in kube-scheduler.
    """
    tls = extender.tls or ExtenderTls()
    has_authority = bool(tls.ca_data or tls.ca_file)
    if tls.insecure and has_authority:
        raise UserError(f"extender {name}: tlsConfig: insecure, and a certificate authority: only one of them can hold")
    try:
        context = _trusting(tls) if has_authority else ssl.create_default_context()
        if tls.insecure or (extender.enable_https and not has_authority):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _identify(context, tls)
    except (OSError, ValueError) as cause:  # ssl.SSLError is an OSError
        raise UserError(f"extender {name}: tlsConfig: {_told(cause)}") from cause
    return context


def _trusting(tls: ExtenderTls) -> ssl.SSLContext:
    authority = tls.ca_data or Path(tls.ca_file).read_bytes()
    context = ssl.create_default_context(cadata=authority.decode("ascii"))
    # like kube-scheduler: authorities are often older than the rules that Python 3.13 enforces
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _identify(context: ssl.SSLContext, tls: ExtenderTls) -> None:
    certified = bool(tls.cert_data or tls.cert_file)
    if certified != bool(tls.key_data or tls.key_file):
        raise ValueError("a client certificate and its key are needed together")
    if not certified:
        return
    with _file_of(tls.cert_data, tls.cert_file) as certificate, _file_of(tls.key_data, tls.key_file) as key:
        context.load_cert_chain(certificate, key)


@contextmanager
def _file_of(data: bytes, path: str) -> Iterator[str]:
    """Python loads client certificates only from files: write data to a temporary one, readable by this user only."""
    if not data:
        with open(path, "rb"):  # for a better error
            yield path
        return
    descriptor, made = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        yield made
    finally:
        os.unlink(made)


def _told(cause: OSError | ValueError) -> str:
    if isinstance(cause, OSError) and cause.filename:
        return f"{cause.filename}: {cause.strerror}"
    if isinstance(cause, ssl.SSLError):
        return f"the certificates cannot be used: {cause.reason or cause}"
    return " ".join(str(cause).split())
