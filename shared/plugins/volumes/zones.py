"""The zones and regions that the labels of a volume name."""

from typing import NamedTuple

from shared.model.objects import PersistentVolume
from shared.model.wellknown import BETA_REGION, BETA_ZONE, REGION, ZONE
from shared.plugins.volumes.migration import BETWEEN_ZONES

LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)


class Zones(NamedTuple):
    """A node must have one of the values of this label."""

    label: str
    values: frozenset[str]


def zones_of_volume(volume: PersistentVolume) -> list[Zones]:
    """A label that names an empty zone says nothing."""
    zones: list[Zones] = []
    for label in LABELS:
        text = volume.metadata.labels.get(label)
        if text is not None:
            values = frozenset(value.strip() for value in text.split(BETWEEN_ZONES))
            if "" not in values:
                zones.append(Zones(label, values))
    return zones
