"""/livez and /readyz, in the forms that Kubernetes' components have: at a glance, check by check, and one check alone.

`?verbose` has a line a check, `[+]nats ok` or `[-]nats failed: why`; `?exclude=nats` leaves one out; `/readyz/nats` is
that one. Why it is not is no secret here.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.runtime.health import Health

OK, NOT_FOUND, UNAVAILABLE = 200, 404, 503
PING = "ping"
ALIVE: Mapping[str, str] = {PING: ""}
"""All there is to being alive: whoever answers is."""


class Answer(NamedTuple):
    status: int
    text: str


def ready_at_a_glance(health: Health) -> Answer:
    """`ok`, and who leads if it is another; or why not, one reason a line."""
    reasons = health.reasons()
    if reasons:
        return Answer(UNAVAILABLE, "".join(f"{reason}\n" for reason in reasons))
    return Answer(OK, f"ok: {health.role.replace(': ', ', ', 1)}\n" if health.standing_by else "ok\n")


def checks_answer(page: str, checks: Mapping[str, str], excluded: Sequence[str], *, verbose: bool) -> Answer:
    """Of all checks but some. One that fails has all told."""
    lines: list[str] = []
    failed = False
    for name, why in checks.items():
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
        elif why:
            failed = True
            lines.append(f"[-]{name} failed: {why}")
        else:
            lines.append(f"[+]{name} ok")
    unknown = sorted(set(excluded) - checks.keys())
    if unknown:
        lines.append(f"warn: there is no check to exclude: {', '.join(map(ascii, unknown))}")
    if not failed and not verbose:
        return Answer(OK, "ok\n")
    lines.append(f"{page} check {'failed' if failed else 'passed'}")
    return Answer(UNAVAILABLE if failed else OK, "".join(f"{line}\n" for line in lines))


def one_check(name: str, checks: Mapping[str, str]) -> Answer:
    if name not in checks:
        return Answer(NOT_FOUND, f"there is no check of this name; there are {', '.join(checks)}\n")
    why = checks[name]
    return Answer(UNAVAILABLE, f"{name}: {why}\n") if why else Answer(OK, "ok\n")
