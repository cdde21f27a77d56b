"""Custom resource definitions: the types that they declare."""

from testing.simulator.resources import Object, Resource


def custom_resources(definition: Object) -> list[Resource]:
    """One type for every version that is served; all of them keep their objects in the same place."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Resource(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames") or ()),
            subresources=tuple(name for name in ("status", "scale") if name in (version.get("subresources") or {})),
            categories=tuple(names.get("categories") or ()),
            counts_generations=True,
            strategic=False,
            kept_as=(spec["group"], names["plural"]) if len(spec["versions"]) > 1 else None,
        )
        for version in spec["versions"]
        if version.get("served", True)
    ]


def establish(definition: Object, now: str) -> None:
    """A definition is in force as soon as it is written."""
    spec = definition["spec"]
    names = {"listKind": f"{spec['names']['kind']}List", "singular": spec["names"]["kind"].lower(), **spec["names"]}
    spec["names"] = names
    definition["status"] = {
        "acceptedNames": names,
        "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
        "conditions": [
            {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
            for type_, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
    }
