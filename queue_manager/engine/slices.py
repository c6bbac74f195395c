"""Slices: pods in whole groups, each in one domain of a level, layers of them inside each other (kueue.md 2.11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from queue_manager.engine.fleet import Forest, Ints
from queue_manager.engine.workload import SliceLayer


class Layer(NamedTuple):
    """Slices of `size` pods at the level `depth` of a forest; `single`: a domain holds one of them at most."""

    depth: int
    size: int
    single: bool = False


Layers = tuple[Layer, ...]
"""Outermost first: depths do not shrink, each size divides the one before."""


def layers_of(keys: Sequence[str], wanted: Sequence[SliceLayer], depth: int = 0) -> Layers | str:
    """The layers of a request whose pods lie in a domain of level `depth`, or what is wrong with them."""
    found: list[Layer] = []
    for layer in wanted:
        if layer.level not in keys:
            return f"the topology has no level {layer.level}"
        here = Layer(keys.index(layer.level), layer.size)
        if here.size <= 0:
            return f"slices of level {layer.level} need a size"
        if not found and here.depth < depth:
            return f"slices of level {layer.level} are wider than level {keys[depth]}"
        if found and here.depth <= found[-1].depth:
            return f"slices of level {layer.level} must be narrower than those around them"
        if found and found[-1].size % here.size:
            return f"slices of {here.size} pods do not divide slices of {found[-1].size}"
        found.append(here)
    return tuple(found)


def capacity(forest: Forest, counts: Ints, layers: Layers) -> Ints:
    """Pods in whole slices by domain of the outermost layer's level; `counts` itself without layers."""
    room, starts = counts, np.arange(len(counts))
    for layer in reversed(layers):
        level = forest.levels[layer.depth]
        if not len(level.starts):
            return np.zeros(0, dtype=np.int64)
        room = np.add.reduceat(room, np.searchsorted(starts, level.starts)) // layer.size * layer.size
        if layer.single:
            np.minimum(room, layer.size, out=room)
        starts = level.starts
    return room


def whole(count: int, layers: Layers) -> int:
    """Room that `count` pods need: the last slice may be short, its domain must hold a whole one."""
    return count if not layers else -(-count // layers[0].size) * layers[0].size
