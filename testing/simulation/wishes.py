"""Pods that matter to others by more than the place they take."""

import random

from shared.model.objects import LabelSelector
from testing.builders import PodBuilder, selector

ZONE, HOST, APP = "zone", "kubernetes.io/hostname", "app"
PORT = 8080


def with_a_wish(built: PodBuilder, dice: random.Random) -> PodBuilder:
    labels = {APP: dice.choice("xyz")}
    return dice.choice(WISHES)(built.label(labels), selector(labels))


def _spread(built: PodBuilder, alike: LabelSelector) -> PodBuilder:
    return built.spread_hard(ZONE, alike)


def _softly_spread(built: PodBuilder, alike: LabelSelector) -> PodBuilder:
    return built.spread_soft(HOST, alike)


def _near(built: PodBuilder, alike: LabelSelector) -> PodBuilder:
    return built.require_pods(ZONE, alike)


def _alone_in_zone(built: PodBuilder, alike: LabelSelector) -> PodBuilder:
    return built.require_no_pods(ZONE, alike)


def _alone_on_node(built: PodBuilder, alike: LabelSelector) -> PodBuilder:
    return built.require_no_pods(HOST, alike)


def _first(built: PodBuilder, alike: LabelSelector) -> PodBuilder:
    return built.priority(100)


def _on_a_port(built: PodBuilder, alike: LabelSelector) -> PodBuilder:
    return built.host_port(PORT)


WISHES = (_spread, _softly_spread, _near, _alone_in_zone, _alone_on_node, _first, _on_a_port)
