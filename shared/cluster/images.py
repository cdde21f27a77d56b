"""Image sizes: an image counts with the size that the first node reported, as long as any node has it."""

from dataclasses import dataclass

import msgspec

from shared.model.objects import ContainerImage, Node

Names = tuple[str, ...]


@dataclass(slots=True)
class _Known:
    """An image in a node's list. `settled`: its names that share one settled size; one object for all nodes."""

    settled: list[ContainerImage]
    nodes: int = 0


class ImageSizes:
    """Nodes report slightly different sizes; all count with the first, so that every shard scores alike."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._lists: dict[str, int] = {}
        """The number of known name lists that contain each name."""
        self._known: dict[Names, _Known] = {}

    def settle(self, node: Node, before: Node | None) -> Node:
        """The node, with each image's settled size and names."""
        if before is not None:
            self.forget(before)
        images: list[ContainerImage] = []
        for image in node.status.images:
            names = tuple(image.names)
            known = self._known.get(names) or self._add(names, image.size_bytes)
            known.nodes += 1
            images += known.settled
        if not images:
            return node
        return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, images=images))

    def forget(self, node: Node) -> None:
        for image in node.status.images:
            names = tuple(image.names)
            known = self._known.get(names)
            if known is not None:
                known.nodes -= 1
                if not known.nodes:
                    self._remove(names)

    def _add(self, names: Names, size: int) -> _Known:
        by_size: dict[int, list[str]] = {}
        for name in names:
            by_size.setdefault(self._sizes.setdefault(name, size), []).append(name)
            self._lists[name] = self._lists.get(name, 0) + 1
        settled = [ContainerImage(names=of_size, size_bytes=size) for size, of_size in by_size.items()]
        known = self._known[names] = _Known(settled)
        return known

    def _remove(self, names: Names) -> None:
        del self._known[names]
        for name in names:
            self._lists[name] -= 1
            if not self._lists[name]:
                del self._lists[name], self._sizes[name]
