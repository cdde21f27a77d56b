"""The console's process: follows a pipeline, and serves the page."""

from shared.config.settings import Settings
from shared.runtime import host
from shared.runtime.context import Context
from tools.console.follower import Follower
from tools.console.site import site


def serve(settings: Settings, *, tell: bool = False) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code. `tell`: print the address."""
    follower = Follower()

    async def main(context: Context) -> None:
        if tell:
            print(f"console: {context.http_url}/", flush=True)
        context.health.ready()
        await follower.run(context.bus, settings)

    return host("console", settings, main, site(settings, follower))
