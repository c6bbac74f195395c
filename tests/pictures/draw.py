"""Draws which pod has which GPUs of which node, as SVG, from the pods and nodes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from queue_manager.cluster.nodes import is_ready
from queue_manager.cluster.port import NODES, Object
from queue_manager.cluster.simulated.fleet import BLOCK_LABEL, GPU, RACK_LABEL
from queue_manager.kinds.gates import INDEX_LABEL, JOB_INDEX_LABEL
from tests.controller.world import World

ZONE_LABEL = "topology.kubernetes.io/zone"
COLOURS = ("#2f6fb5", "#c4622d", "#3f8f5b", "#8a5aa8", "#b08a1e", "#b5436b")
FREE, LINE, TEXT, DOWN = "#eef1f4", "#9aa5b1", "#24292f", "#f3c6c6"
CELL, ROW, NAME, GAP = 15, 19, 30, 10


@dataclass(frozen=True)
class Pod:
    """A pod on its node. `rank` is what is written on it."""

    job: str
    rank: str
    gpus: int


@dataclass(frozen=True)
class Box:
    """A drawn domain: its size, and how to draw it at a place."""

    width: int
    height: int
    parts: tuple[tuple[int, int, str], ...]

    def at(self, x: int, y: int) -> str:
        """The SVG of it with its corner at (x, y)."""
        return "".join(f'<g transform="translate({x + dx} {y + dy})">{svg}</g>' for dx, dy, svg in self.parts)


def picture(world: World, jobs: Sequence[str], caption: str = "") -> str:
    """All nodes by zone, block and rack, each GPU in the colour of the job whose pod has it."""
    placed = _pods(world, jobs)
    colours = dict(zip(jobs, COLOURS, strict=False))
    tree: dict[str, dict[str, dict[str, list[Object]]]] = {}
    for node in sorted(world.cluster.state.storage.all(NODES), key=lambda node: str(node["metadata"]["name"])):
        labels = node["metadata"]["labels"]
        racks = tree.setdefault(labels[ZONE_LABEL], {}).setdefault(labels[BLOCK_LABEL], {})
        racks.setdefault(labels[RACK_LABEL], []).append(node)
    zones = [
        _domain(
            zone,
            [
                _domain(
                    block,
                    [
                        _domain(rack, [_node(node, placed, colours) for node in nodes], gap=2)
                        for rack, nodes in racks.items()
                    ],
                )
                for block, racks in blocks.items()
            ],
            across=True,
        )
        for zone, blocks in tree.items()
    ]
    fleet = _side_by_side(zones)
    legend = _legend([job for job in jobs if job in colours], colours)
    lines = _wrapped(caption, fleet.width // 7)
    height = fleet.height + legend.height + GAP * 2 + 18 * len(lines)
    words = "".join(
        f'<text x="{GAP}" y="{fleet.height + legend.height + GAP * 2 + 18 * i + 10}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{fleet.width + 2 * GAP}" height="{height + GAP}"'
        f' font-family="system-ui, sans-serif" font-size="12" fill="{TEXT}">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{legend.at(GAP, GAP)}'
        f"{fleet.at(GAP, legend.height + GAP)}{words}</svg>\n"
    )


def _pods(world: World, jobs: Sequence[str]) -> Mapping[str, list[Pod]]:
    """The pods of the jobs that have not ended, by node."""
    placed: dict[str, list[Pod]] = {}
    for pod in world.pods():
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        job = max((job for job in jobs if name.startswith(f"{job}-")), key=len, default="")
        if job and node and "deletionTimestamp" not in pod["metadata"]:
            gpus = sum(int(c["resources"]["limits"][GPU]) for c in pod["spec"]["containers"] if GPU in _limits(c))
            placed.setdefault(node, []).append(Pod(job, _rank(pod), gpus))
    return {node: sorted(pods, key=lambda pod: (pod.job, pod.rank)) for node, pods in placed.items()}


def _limits(container: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = container["resources"].get("limits") or {}
    return found


def _rank(pod: Object) -> str:
    """Index of the pod in its Job; after the first letter of its replicated job in a JobSet, and the index of its Job
    where there are several."""
    labels = pod["metadata"]["labels"]
    index = labels.get(INDEX_LABEL, "")
    if "jobset.sigs.k8s.io/replicatedjob-name" not in labels:
        return str(index)
    several = int(labels["jobset.sigs.k8s.io/replicatedjob-replicas"]) > 1
    return (
        f"{labels['jobset.sigs.k8s.io/replicatedjob-name'][0]}{labels[JOB_INDEX_LABEL] + '.' if several else ''}{index}"
    )


def _node(node: Object, placed: Mapping[str, list[Pod]], colours: Mapping[str, str]) -> Box:
    name, total = node["metadata"]["name"], int(node["status"]["allocatable"][GPU])
    x, svg = NAME, f'<text x="0" y="{ROW - 6}" font-size="10">{escape(name.rsplit("-", 1)[-1])}</text>'
    down = not is_ready(node)
    for gpu in range(total):
        fill = DOWN if down else FREE
        svg += f'<rect x="{x + gpu * CELL}" y="1" width="{CELL - 2}" height="{ROW - 5}" rx="2" fill="{fill}"/>'
    for pod in placed.get(name, ()):
        width = pod.gpus * CELL - 2
        svg += (
            f'<rect x="{x}" y="1" width="{width}" height="{ROW - 5}" rx="2" fill="{colours[pod.job]}"/>'
            f'<text x="{x + width / 2:g}" y="{ROW - 8}" font-size="10" fill="#ffffff" text-anchor="middle">'
            f"{escape(pod.rank)}</text>"
        )
        x += pod.gpus * CELL
    if down:
        svg += f'<text x="{NAME + total * CELL / 2:g}" y="{ROW - 8}" font-size="10" text-anchor="middle">down</text>'
    return Box(NAME + total * CELL, ROW, ((0, 0, svg),))


def _domain(name: str, inside: Sequence[Box], *, across: bool = False, gap: int = GAP) -> Box:
    """A frame with its name around what lies in it, above each other or `across`."""
    inner = _side_by_side(inside) if across else _stacked(inside, gap)
    width, height = inner.width + 2 * GAP, inner.height + GAP + 20
    frame = (
        f'<rect width="{width}" height="{height}" rx="5" fill="none" stroke="{LINE}"/>'
        f'<text x="{GAP}" y="14" font-size="11">{escape(name)}</text>'
    )
    return Box(width, height, ((0, 0, frame), (GAP, 20, inner.at(0, 0))))


def _side_by_side(boxes: Sequence[Box]) -> Box:
    parts, x = [], 0
    for box in boxes:
        parts.append((x, 0, box.at(0, 0)))
        x += box.width + GAP
    return Box(x - GAP, max(box.height for box in boxes), tuple(parts))


def _stacked(boxes: Sequence[Box], gap: int) -> Box:
    parts, y = [], 0
    for box in boxes:
        parts.append((0, y, box.at(0, 0)))
        y += box.height + gap
    return Box(max(box.width for box in boxes), y - gap, tuple(parts))


def _legend(jobs: Sequence[str], colours: Mapping[str, str]) -> Box:
    svg, x = "", 0
    for job in jobs:
        svg += f'<rect x="{x}" y="0" width="12" height="12" rx="2" fill="{colours[job]}"/>'
        svg += f'<text x="{x + 17}" y="10">{escape(job)}</text>'
        x += 34 + 7 * len(job)
    return Box(x, 22, ((0, 0, svg),))


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + len(word) < width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
