"""How many pods the queue holds, read from its metrics."""

import re

PLACES = ("active", "backoff", "unschedulable", "gated", "in flight", "binding")
_SAMPLE = re.compile(
    r'^(?:scheduler_pending_pods\{queue|flotilla_queue_pods\{place)="(?P<place>[^"]+)"\} (?P<count>\S+)$', re.MULTILINE
)


def pods_by_place(exposition: str) -> dict[str, int]:
    """Those that have pods, from arriving to being seen bound."""
    found = {
        m["place"].replace("_", " ").replace("-", " "): int(float(m["count"])) for m in _SAMPLE.finditer(exposition)
    }
    return {place: found[place] for place in PLACES if found.get(place)}
