"""The size that an image counts with: that of the first node that reported it, for as long as any node has it."""

import msgspec

from shared.model.objects import ContainerImage, Node


class ImageSizes:
    """Nodes report sizes that differ a little; all nodes carry the first, so that every shard scores alike."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._holders: dict[str, set[str]] = {}

    def settle(self, node: Node, before: Node | None) -> Node:
        """The node with each image's settled size, and only under names that settle to the same size."""
        if before is not None:
            self.forget(before)
        images: list[ContainerImage] = []
        for image in node.status.images:
            by_size: dict[int, list[str]] = {}
            for name in image.names:
                size = self._sizes.setdefault(name, image.size_bytes)
                self._holders.setdefault(name, set()).add(node.name)
                by_size.setdefault(size, []).append(name)
            images.extend(ContainerImage(names=names, size_bytes=size) for size, names in by_size.items())
        if not images:
            return node
        return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, images=images))

    def forget(self, node: Node) -> None:
        for image in node.status.images:
            for name in image.names:
                holders = self._holders.get(name)
                if holders is not None:
                    holders.discard(node.name)
                    if not holders:
                        del self._holders[name], self._sizes[name]
