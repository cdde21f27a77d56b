"""Which options of lists and watches contradict each other."""

from collections.abc import Mapping

from testing.simulator.errors import bad_request, forbidden_value, invalid_options, unsupported_value

MATCHES = ("Exact", "NotOlderThan")
MATCH = "resourceVersionMatch"
INITIAL = "sendInitialEvents"


def check_list(query: Mapping[str, str]) -> None:
    match, version, following = query.get(MATCH), query.get("resourceVersion"), query.get("continue")
    if query.get(INITIAL) is not None:
        raise invalid_options(forbidden_value(INITIAL, f"{INITIAL} is forbidden for list"))
    if match and not version:
        raise invalid_options(forbidden_value(MATCH, f"{MATCH} is forbidden unless resourceVersion is provided"))
    if match and following:
        raise invalid_options(forbidden_value(MATCH, f"{MATCH} is forbidden when continue is provided"))
    if match and match not in MATCHES:
        raise invalid_options(unsupported_value(MATCH, match, MATCHES))
    if match == "Exact" and version == "0":
        why = f'{MATCH} "exact" is forbidden for resourceVersion "0"'
        raise invalid_options(forbidden_value(MATCH, why))
    if following and version not in (None, "", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


def check_watch(query: Mapping[str, str]) -> None:
    """A watch that begins with the state must say that any state not older than the version will do."""
    match, initial = query.get(MATCH), query.get(INITIAL)
    if initial is None and match:
        why = f"{MATCH} is forbidden for watch unless {INITIAL} is provided"
        raise invalid_options(forbidden_value(MATCH, why))
    if initial is not None and match != "NotOlderThan":
        why = f"{INITIAL} requires setting {MATCH} to NotOlderThan"
        raise invalid_options(forbidden_value(MATCH, why))
