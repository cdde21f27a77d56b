"""The simulator on a socket of its own, inside the process that starts it."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from aiohttp import web

from shared.errors import UserError
from testing.simulator.api import Api
from testing.simulator.cluster import Cluster
from testing.simulator.errors import not_found
from testing.simulator.kubelet import KubeletRunner
from testing.simulator.resources import DEFINITIONS, Object, Resource
from testing.simulator.server import Faults, Handler
from testing.simulator.store import Item
from testing.simulator.subresources import ReviewedUser, Reviews

STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    host: str = "127.0.0.1"
    """Address to listen on. There is no TLS, so the default is this machine only."""
    port: int = 0
    """0: any free port."""
    token: str | None = None
    """Bearer token to require; None: no authentication."""
    kubelet: bool = True
    """Run bound pods and remove deleted ones."""
    bookmark_seconds: float = 60.0
    """Interval of bookmarks; a minute, as from a real server."""
    history: int = 32_768
    """Changes of each type from which watches can resume: ten seconds at 3,000 changes a second."""
    max_events: int = 50_000
    """Events kept at most, about 40 MB; the oldest are removed."""
    max_pending_bytes: int = 64 << 20
    """Bytes that may wait for one watch; beyond that the watch ends."""
    users: tuple[ReviewedUser, ...] = ()
    """Users known to TokenReview and SubjectAccessReview. They do not restrict requests to the simulator."""
    seed: int | None = None
    """Seed of uids and generated names; None: random."""


class Simulator:
    """A Kubernetes API server in this process."""

    def __init__(
        self,
        options: SimulatorOptions | None = None,
        clock: Callable[[], float] = time.time,
        cluster: Cluster | None = None,
    ) -> None:
        """`cluster`: serve another simulator's cluster, as a second API server with faults of its own."""
        self.options = options or SimulatorOptions()
        self.faults = Faults()
        self.url = ""
        self.cluster = cluster or Cluster(
            history=self.options.history,
            max_events=self.options.max_events,
            clock=clock,
            random=Random(self.options.seed),
        )
        self._api = Api(self.cluster, self.options.max_pending_bytes, Reviews(self.options.users))
        self._handler = Handler(
            self._api,
            self.faults,
            token=self.options.token,
            bookmark_seconds=self.options.bookmark_seconds,
            version=lambda: self.cluster.store.version,
        )
        self._web: web.Server | None = None
        self._listening: asyncio.Server | None = None
        self._kubelet: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Listen; returns the URL."""
        host, port = self.options.host, self.options.port
        server = web.Server(
            self._handler, request_factory=self._handler.make_request, handler_cancellation=True, access_log=None
        )
        try:
            listening = await asyncio.get_running_loop().create_server(server, host, port)
        except OSError as error:
            why = error.strerror or str(error)
            raise UserError(f"the simulator cannot listen on {host}:{port}: {why}") from error
        self._web, self._listening = server, listening
        bound = listening.sockets[0].getsockname()[1]
        self.url = f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}"
        if self.options.kubelet:
            self._kubelet = asyncio.create_task(KubeletRunner(self.cluster).run(), name="simulated kubelets")
        return self.url

    async def stop(self) -> None:
        if self._kubelet is not None:
            self._kubelet.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._kubelet
            self._kubelet = None
        if self._listening is not None and self._web is not None:
            self._listening.close()
            self._handler.close_watches()
            await self._web.shutdown(STOP_SECONDS)
            await self._listening.wait_closed()
            await asyncio.sleep(0)  # transports close in the next iteration of the loop
            self._listening = self._web = None

    # For tests

    def store_raw(self, plural: str, obj: Object, *, group: str = "", version: str = "") -> Item:
        """Store an object as it is, even one that a real server rejects. Without a version any served one is used.

        The object needs a name, and a namespace if its type is namespaced.
        """
        return self.cluster.store.put(self._resource(plural, group, version), obj)

    def stored(self, plural: str, name: str, namespace: str = "", *, group: str = "", version: str = "") -> Object:
        """A copy of an object."""
        return self.cluster.find(self._resource(plural, group, version), namespace, name).decode()

    def serve(self, group: str, *versions: str) -> None:
        """Serve a group's types in these versions only, as another release does; objects are unaffected."""
        self.cluster.catalog.serve(group, versions)

    def close_watches(self) -> None:
        """End every open watch, as a restarting server does."""
        self._handler.close_watches()

    def compact(self) -> None:
        """Discard the history: older resource versions and continue tokens are expired."""
        self.cluster.store.compact()
        self._api.reader.pages.expire()

    def resize_history(self, history: int) -> None:
        """Keep this many changes of each type from now on."""
        self.cluster.store.resize_history(history)

    def _resource(self, plural: str, group: str, version: str) -> Resource:
        catalog = self.cluster.catalog
        versions = [version] if version else catalog.groups().get(group, [])
        found = (catalog.find(group, one, plural) for one in versions)
        resource = next((resource for resource in found if resource is not None), None)
        if resource is None:
            raise not_found(DEFINITIONS, f"{plural}.{group}")
        return resource
