"""Our own part of a TrainJob's patch list: writing, finding and emptying it without touching anybody else's entries."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from queue_manager.cluster.port import Object
from queue_manager.kinds import annotations as keys
from queue_manager.kinds import patches, replicated_jobs
from queue_manager.kinds.fields import View
from queue_manager.kinds.kind import MANAGER, Placement, Unresolvable
from queue_manager.kinds.patches import Operation
from queue_manager.kinds.trainer_api import Generation

Content = list[dict[str, Any]]
"""What we write: replicated job patches in `runtimePatches`, whole entries in the older lists. [] for nothing."""

NO_NOTES: Mapping[str, str] = {}


def patch_entry(obj: Object, api: Generation) -> PatchEntry:
    """Our part of this TrainJob in this generation's form."""
    return _Keyed(obj, api) if api.keyed else _Listed(obj, api)


class PatchEntry(ABC):
    """Our part of the list. The annotation `placement` keeps two digests, of the placement and of what it became in the
    list, so that an entry which the API server dropped or somebody removed is told apart from one not yet written."""

    def __init__(self, obj: Object, api: Generation) -> None:
        self.obj = obj
        self.api = api
        self.list = View(obj).at("spec", api.field)
        self.entries = list(self.list.items())
        self.mark = patches.annotation(obj, keys.PLACEMENT)

    @property
    def recorded(self) -> tuple[dict[str, Any], ...]:
        """Entries of ours in a list without keys, to be left out when the TrainJob is resolved."""
        return ()

    @abstractmethod
    def present(self) -> Content:
        """What is there of ours."""

    @abstractmethod
    def content(self, spec: View, placement: Placement) -> Content:
        """What is to be there for this placement; `spec` is the JobSet spec without ours. Raises Unresolvable."""

    @abstractmethod
    def fill(self, wanted: Content, placement: Placement, notes: Mapping[str, str] = NO_NOTES) -> list[Operation]:
        """Operations that make it so, with tests that nobody changed the list meanwhile. `notes`: more annotations."""

    @abstractmethod
    def clear(self) -> tuple[list[Operation], str]:
        """Operations that take our content away, and what they do; none when nothing is there."""

    @abstractmethod
    def overruled(self) -> bool:
        """Whether a later entry of somebody else could replace what ours says (tolerations are replaced whole)."""

    def ensure(self) -> list[Operation]:
        """Operations that give a new TrainJob our empty entry, where the API has keys."""
        return []

    def holds(self, wanted: Content, placement: Placement) -> bool:
        """Whether exactly this is there, and noted as ours."""
        if self.present() != wanted or (wanted and self.overruled()):
            return False
        return self.mark == mark(placement, wanted) or self._untouched(wanted, placement)

    def carries(self, placement: Placement) -> bool:
        """Whether what we wrote for this placement is there unchanged."""
        present = self.present()
        return self.mark == mark(placement, present) or self._untouched(present, placement)

    def _untouched(self, content: Content, placement: Placement) -> bool:
        """Whether nothing was written because this placement asks for nothing."""
        return not content and not self.mark and not _is_more(placement)

    def lost(self, placement: Placement) -> str:
        """Says so when this placement was written and is not there any more (kueue#11931, an old CRD); else ""."""
        written, _, content = self.mark.partition(".")
        if not self.mark or written != placement_digest(placement) or content == patches.digest(self.present()):
            return ""
        return f"{self.path}: the placement was written but is not there: the API server dropped it or it was removed"

    @property
    def path(self) -> str:
        """Where the list lies in the TrainJob."""
        return f"spec.{self.api.field}"

    def job_patches(self, spec: View, placement: Placement) -> list[tuple[str, dict[str, Any]]]:
        """Pod template patches by replicated job, in the template's order; jobs that need none are left out."""
        jobs = {job.name: job for job in replicated_jobs.replicated_jobs(spec)}
        for name in placement:
            if name not in jobs:
                path = spec["replicatedJobs"].path
                raise Unresolvable("UnknownPodSet", path, f"{path} has no job {name!r} to place; resolve it again")
        found = [
            (name, patches.pod_patch(job.template, placement[name], with_metadata=self.api.pod_metadata))
            for name, job in jobs.items()
            if name in placement
        ]
        return [(name, patch) for name, patch in found if patch]


def placement_digest(placement: Placement) -> str:
    """A short name of a placement; the counts are no part of it."""
    return patches.digest(
        {
            name: [
                dict(pod.node_selector),
                [tuple(entry) for entry in pod.tolerations],
                dict(pod.labels),
                dict(pod.annotations),
                *([list(pod.gates)] if pod.gates else []),
            ]
            for name, pod in placement.items()
        }
    )


def mark(placement: Placement, content: Content) -> str:
    """The value of our annotation for a placement that became this content."""
    return f"{placement_digest(placement)}.{patches.digest(content)}"


def _is_more(placement: Placement) -> bool:
    return any(
        pod.node_selector or pod.tolerations or pod.labels or pod.annotations or pod.gates for pod in placement.values()
    )


class _Keyed(PatchEntry):
    """`runtimePatches`: the entry whose manager is ours."""

    def __init__(self, obj: Object, api: Generation) -> None:
        super().__init__(obj, api)
        found = [index for index, entry in enumerate(self.entries) if entry["manager"].text() == MANAGER]
        self.index = found[0] if found else None

    def present(self) -> Content:
        if self.index is None:
            return []
        jobs = self.entries[self.index].at("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        return [job.value for job in jobs.items()]

    def content(self, spec: View, placement: Placement) -> Content:
        return [
            {"name": name, "template": {"spec": {"template": patch}}}
            for name, patch in self.job_patches(spec, placement)
        ]

    def overruled(self) -> bool:
        later = self.entries[(self.index or 0) + 1 :]
        jobs = [entry.at("trainingRuntimeSpec", "template", "spec", "replicatedJobs") for entry in later]
        return any(True for job in jobs for _ in job.items())

    def ensure(self) -> list[Operation]:
        # Emptied as well: a user must not place a job through our entry.
        if self.index is None:
            return self._append({"manager": MANAGER})
        return self._empty()

    def fill(self, wanted: Content, placement: Placement, notes: Mapping[str, str] = NO_NOTES) -> list[Operation]:
        content = {"template": {"spec": {"replicatedJobs": wanted}}}
        noted = patches.put_annotations(self.obj, {**notes, keys.PLACEMENT: mark(placement, wanted)})
        if not wanted:
            return [*self._empty(), *noted]
        if self.index is None:
            return [*self._append({"manager": MANAGER, "trainingRuntimeSpec": content}), *noted]
        if self.overruled():
            moved = {**self.entries[self.index].mapping(), "trainingRuntimeSpec": content}
            away = patches.remove("spec", self.api.field, self.index)
            return [self._test(), away, patches.put(moved, "spec", self.api.field, "-"), *noted]
        return [
            self._test(),
            patches.put(content, "spec", self.api.field, self.index, "trainingRuntimeSpec"),
            *noted,
        ]

    def clear(self) -> tuple[list[Operation], str]:
        noted = patches.put_annotations(self.obj, {keys.PLACEMENT: ""})
        if self.index is None or "trainingRuntimeSpec" not in self.entries[self.index].mapping():
            return noted, "forgets the placement: our entry in runtimePatches was removed by somebody else"
        return [*self._empty(), *noted], "takes the placement out of our entry in runtimePatches"

    def _empty(self) -> list[Operation]:
        if self.index is None or "trainingRuntimeSpec" not in self.entries[self.index].mapping():
            return []
        return [self._test(), patches.remove("spec", self.api.field, self.index, "trainingRuntimeSpec")]

    def _test(self) -> Operation:
        assert self.index is not None
        return patches.test(MANAGER, "spec", self.api.field, self.index, "manager")

    def _append(self, entry: dict[str, Any]) -> list[Operation]:
        if not self.list.given:
            return [patches.put([entry], "spec", self.api.field)]
        return [patches.put(entry, "spec", self.api.field, "-")]


class _Listed(PatchEntry):
    """`podSpecOverrides` and `podTemplateOverrides`, lists without keys: ours are the entries equal to those that our
    annotation `overrides` keeps; everybody else's stay as they are."""

    def __init__(self, obj: Object, api: Generation) -> None:
        super().__init__(obj, api)
        self.kept = _kept(obj)
        self.indexes = self._indexes()

    def _indexes(self) -> list[int]:
        """Places of our entries: from the end, because that is where we put them."""
        found: list[int] = []
        for entry in reversed(self.kept):
            for index in range(len(self.entries) - 1, -1, -1):
                if index not in found and self.entries[index].value == entry:
                    found.append(index)
                    break
        return sorted(found)

    @property
    def recorded(self) -> tuple[dict[str, Any], ...]:
        return tuple(self.kept)

    def present(self) -> Content:
        return [self.entries[index].value for index in self.indexes]

    def content(self, spec: View, placement: Placement) -> Content:
        wanted: Content = []
        for name, patch in self.job_patches(spec, placement):
            self._refuse_taken(name)
            wanted.append({"targetJobs": [{"name": name}], **(patch if self.api.pod_metadata else patch["spec"])})
        return wanted

    def _refuse_taken(self, name: str) -> None:
        """Trainer v2.0 refuses a job that two entries name, and to write into the user's own entry is not our right."""
        if not self.api.one_target:
            return
        for index, entry in enumerate(self.entries):
            targets = [target["name"] for target in entry["targetJobs"].items()] if index not in self.indexes else []
            for field in targets:
                if field.text() == name:
                    message = f"{field.path}: this Trainer allows one entry for {name!r}, the placement needs its own"
                    raise Unresolvable("OverrideTaken", field.path, message)

    def overruled(self) -> bool:
        return self.indexes != list(range(len(self.entries) - len(self.indexes), len(self.entries)))

    def fill(self, wanted: Content, placement: Placement, notes: Mapping[str, str] = NO_NOTES) -> list[Operation]:
        operations = self._take_out()
        if wanted and not self.list.given:
            operations.append(patches.put(wanted, "spec", self.api.field))
        else:
            operations += [patches.put(entry, "spec", self.api.field, "-") for entry in wanted]
        kept = json.dumps(wanted, sort_keys=True) if wanted else ""
        own = {keys.OVERRIDES: kept, keys.PLACEMENT: mark(placement, wanted)}
        return [*operations, *patches.put_annotations(self.obj, {**notes, **own})]

    def clear(self) -> tuple[list[Operation], str]:
        noted = patches.put_annotations(self.obj, {keys.OVERRIDES: "", keys.PLACEMENT: ""})
        if not self.indexes:
            return noted, f"forgets the placement: our entries in {self.api.field} were removed by somebody else"
        return [*self._take_out(), *noted], f"takes our entries out of {self.api.field}"

    def _take_out(self) -> list[Operation]:
        operations: list[Operation] = []
        for index in reversed(self.indexes):
            operations.append(patches.test(self.entries[index].value, "spec", self.api.field, index))
            operations.append(patches.remove("spec", self.api.field, index))
        return operations


def _kept(obj: Object) -> Content:
    """The entries that our annotation keeps; a value that isn't ours is as good as none."""
    try:
        kept = json.loads(patches.annotation(obj, keys.OVERRIDES) or "[]")
    except ValueError:
        return []
    return kept if isinstance(kept, list) and all(isinstance(entry, dict) for entry in kept) else []
