"""A scenario for people: pass by pass what was decided, and at the end why each of the rest waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from queue_manager.config.human import clean
from queue_manager.engine.decision import (
    EVICTION_WORDS,
    Admission,
    Blocker,
    BlockerType,
    PodSetAssignment,
    Reason,
    Waiting,
)
from queue_manager.simulate.outcome import topology, why_pending
from queue_manager.simulate.run import Ended, Result, Step
from queue_manager.simulate.semantics import Semantics
from queue_manager.simulate.states import Stage

MOST_DOMAINS = 6
MOST_HOLDERS = 4
ADMITTED, EVICTED, WAITS = ("green", "+"), ("red", "-"), ("yellow", "·")


def print_result(console: Console, result: Result) -> None:
    """The whole story of one scenario; wraps at the console's width."""
    with console.capture() as captured:
        for part in _parts(result):
            console.print(part)
    # A grid fills each line up with blanks.
    console.file.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def print_error(console: Console, path: str, message: str) -> None:
    """A scenario that could not be played."""
    said = Text.assemble((clean(path), "bold"), (" can't be played: ", "red"), clean(message))
    console.print(said, soft_wrap=True)


def _parts(result: Result) -> Iterator[RenderableType]:
    scenario = result.scenario
    stages = Counter(job.standing.stage for job in scenario.jobs)
    title = _text(scenario.name or "scenario", "bold")
    if scenario.semantics is Semantics.KUEUE:
        title.append("  by Kueue's rules", "dim")
    yield title
    if scenario.description:
        yield _text(scenario.description, "dim")
    start = f"{_number(len(scenario.configuration.queues), 'queue')}, {_number(len(scenario.nodes), 'node')}"
    start += f"; at the start {stages[Stage.RUNNING]} running, {stages[Stage.WAITING]} waiting"
    if stages[Stage.GOING]:
        start += f", {stages[Stage.GOING]} ending"
    yield Text(start, "dim")
    narrator = _Narrator(result)
    for step in result.steps:
        lines = narrator.lines(step)
        if lines is not None:
            yield Text(f"\nPass {step.number}", "bold")
            yield lines
    yield Text("\nIn the end", "bold")
    if not result.settled:
        yield Text(f"It does not come to rest: cut after {len(result.steps)} passes.", "red")
    yield Text(_summary(result))
    if len(result.admitted) < len(result.jobs):
        yield Padding(narrator.waiting_table(), (1, 0, 0, 0))


def _summary(result: Result) -> str:
    waiting = len(result.jobs) - len(result.admitted)
    text = f"{len(result.admitted)} of {_number(len(result.jobs), 'workload')} admitted"
    if waiting:
        text += f", {waiting} {'waits' if waiting == 1 else 'wait'}"
    if result.evictions:
        text += f", {_number(len(result.evictions), 'eviction')}"
    return text


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


class _Narrator:
    """Tells the steps of one result."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._final = {uid: waiting.message for uid, waiting in result.waiting.items()}

    def name(self, uid: str) -> str:
        """`namespace/name` of a workload."""
        job = self._result.jobs.get(uid)
        return clean(job.key if job is not None else uid)

    def lines(self, step: Step) -> Table | None:
        """What a pass decided, and who lost in it for a reason that did not last; None when that is nothing."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=40)
        grid.add_column(ratio=1)
        for ended in step.evictions:
            _row(grid, EVICTED, self.name(ended.uid), self._why_ended(ended))
        for admission in step.admissions:
            _row(grid, ADMITTED, self.name(admission.uid), _placed(admission))
        for waiting in step.waiting:
            if self._lost(waiting):
                _row(grid, WAITS, self.name(waiting.uid), _text(f"waits: {waiting.message}", "yellow"))
        return grid if grid.row_count else None

    def _lost(self, waiting: Waiting) -> bool:
        """Whether it was tried in a pass and failed for a reason that is not told at the end."""
        tried = waiting.reason not in (Reason.PENDING_EVALUATION, Reason.NOT_EVALUATED)
        return tried and self._final.get(waiting.uid) != waiting.message

    def _why_ended(self, ended: Ended) -> Text:
        text = Text("evicted", "red")
        text.append(f" for {self.name(ended.by)}" if ended.by else "")
        text.append(clean(f": {EVICTION_WORDS.get(ended.reason, ended.message)}"))
        return text.append(f" ({ended.reason})", "dim")

    def waiting_table(self) -> Table:
        """Everyone who is not admitted: queue, place in it, and every blocker with its numbers."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
        for column in ("QUEUE", "#", "WORKLOAD", "RANK"):
            right = column in ("#", "RANK")
            table.add_column(column, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
        table.add_column("WHY IT WAITS", ratio=1)
        for queue, position, uid in sorted(self._waiting_rows()):
            job = self._result.jobs[uid]
            place = str(position) if position else ""
            table.add_row(_text(queue), place, _text(job.key), str(job.workload.priority), self._why(uid))
        return table

    def _waiting_rows(self) -> Iterable[tuple[str, int, str]]:
        for uid, job in self._result.jobs.items():
            if uid not in self._result.admitted:
                waiting = self._result.waiting.get(uid)
                yield job.workload.queue, waiting.position if waiting is not None else 0, uid

    def _why(self, uid: str) -> RenderableType:
        reason, message = why_pending(self._result, uid)
        waiting = self._result.waiting.get(uid)
        blockers = waiting.blockers if waiting is not None and self._result.jobs[uid].standing.why is None else ()
        lines = [_text(reason, "yellow")]
        lines += [self._blocker(blocker) for blocker in blockers] or [_text(message)]
        return Group(*lines)

    def _blocker(self, blocker: Blocker) -> Text:
        text = _text(blocker.message)
        if blocker.holders and blocker.type is not BlockerType.AHEAD_IN_QUEUE:
            names = ", ".join(self.name(uid) for uid in blocker.holders[:MOST_HOLDERS])
            more = len(blocker.holders) - MOST_HOLDERS
            text.append(f"; held by {names}" + (f" and {more} more" if more > 0 else ""), "dim")
        return text


def _text(text: str, style: str = "") -> Text:
    return Text(clean(text), style)


def _row(grid: Table, mark: tuple[str, str], name: str, what: Text) -> None:
    style, sign = mark
    grid.add_row(Text(f"  {sign}", style), Text(name), what)


def _placed(admission: Admission) -> Text:
    text = Text.assemble(("admitted", "green"), clean(f" to {admission.queue}: "))
    return text.append(clean("; ".join(_pods(pod_set) for pod_set in admission.pod_sets)))


def _pods(assigned: PodSetAssignment) -> str:
    text = f"{assigned.name} {_number(assigned.count, 'pod')}"
    flavors: dict[str, list[str]] = {}
    for resource, flavor in assigned.flavors.items():
        flavors.setdefault(flavor, []).append(resource)
    if flavors:
        text += " on " + ", ".join(f"{flavor} ({', '.join(sorted(r))})" for flavor, r in flavors.items())
    domains = topology(assigned)
    if domains:
        shown = ", ".join(f"{'/'.join(values)} ×{count}" for values, count in domains[:MOST_DOMAINS])
        more = len(domains) - MOST_DOMAINS
        text += f", at {shown}" + (f" and {more} more" if more > 0 else "")
    return text
