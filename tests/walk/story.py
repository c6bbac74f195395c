"""A day of a platform admin, a team lead and an SRE: what they type, one step after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GPU = "nvidia.com/gpu"
HEAD = "apiVersion: queue-manager.io/v1"


ADMIN, LEAD, SRE = "grace", "ada", "edsger"
PEOPLE = (ADMIN, LEAD, SRE)


@dataclass(frozen=True)
class Say:
    """Words of the guide."""

    text: str


@dataclass(frozen=True)
class File:
    """Somebody writes a file; `shown` in the guide."""

    name: str
    text: str
    shown: bool = True


@dataclass(frozen=True)
class Type:
    """A command. `{hash}` is the hash of the plan before. `fails` is its exit code, `says` what has to be in its
    output: at once, or of an explanation as soon as it is complete (the first one after a change is short)."""

    who: str
    command: str
    says: Sequence[str] = ()
    fails: int = 0


@dataclass(frozen=True)
class Hand:
    """The token that was just made is put into a profile of somebody's own."""

    who: str


@dataclass(frozen=True)
class Submit:
    """Users submit jobs; `until` is what has to have become of each."""

    jobs: Sequence[str]
    until: dict[str, str]


@dataclass(frozen=True)
class Until:
    """Nobody goes on before jobs are in these states."""

    states: dict[str, str]


Step = Say | File | Type | Hand | Submit | Until


def queue(name: str, cohort: str, gpus: int, reclaim: str = "Never") -> str:
    """A queue of GPUs."""
    return f"""\
{HEAD}
kind: Queue
metadata: {{name: {name}}}
spec:
  cohort: {cohort}
  namespaceSelector: {{}}
  preemption: {{reclaimWithinCohort: {reclaim}}}
  resourceGroups:
  - coveredResources: [{GPU}]
    flavors:
    - name: h100
      resources: [{{name: {GPU}, nominalQuota: {gpus}}}]
"""


def flat(kind: str, name: str, spec: str = "{}") -> str:
    """An object of few lines."""
    return f"{HEAD}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def train(namespace: str, name: str, nodes: int, user: str) -> str:
    """A TrainJob of nodes with 8 GPUs each."""
    return f"""\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {name}
  namespace: {namespace}
  labels: {{queue-manager.io/queue: {namespace}}}
  annotations: {{simulated.queue-manager.io/user: {user}, simulated.queue-manager.io/run-time: 4h}}
spec:
  runtimeRef: {{name: torch-distributed}}
  trainer:
    numNodes: {nodes}
    resourcesPerNode: {{limits: {{{GPU}: "8"}}}}
"""


COMPANY = "---\n".join(
    [
        flat("Flavor", "h100"),
        flat("Cohort", "company"),
        flat("Cohort", "science", "{parent: company}"),
        queue("research", "science", 128),
        queue("vision", "science", 128),
        queue("language", "company", 192),
        flat("PriorityClass", "high", "{value: 1000}"),
    ]
)
MISTAKES = """\
apiVersion: queue-manager.io/v1
kind: Queue
metadata: {name: speech}
spec:
  cohort: sience
  preemption: {reclaimWithinCohort: Always}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: h100
      resources: [{name: nvidia.com/gpu, nominalQuota: 64 GPUs}]
"""

STORY: Sequence[Step] = (
    Say(
        """\
Three people share a cluster of 512 GPUs: **grace**, platform admin, **ada**, who leads research and vision, and
**edsger**, SRE; the name before `$` says who types. All of it is real output of a test (`tests/walk`) against
`queue-manager up --auth required`, but for times, ages, hashes and tokens, which are evened out. The first start prints
an admin's token and keeps it in a profile for the commands of whoever started it: that is grace's."""
    ),
    Say("### Morning: queues for three teams (platform admin)"),
    File("company.yaml", COMPANY),
    Type(ADMIN, "qm apply -f company.yaml --reason 'three teams'", ["revision 1"]),
    Say(
        "Ada gets a token as queue admin of all below `science`, edsger one as operator. They keep them in\n"
        "a profile: `qm profile set queues --server URL --token -` reads the token from its input."
    ),
    Type(ADMIN, "qm tokens create ada --role queue-admin=science --expires 90d", ["qm_"]),
    Hand(LEAD),
    Type(ADMIN, "qm tokens create edsger --role operator --expires 90d", ["qm_"]),
    Hand(SRE),
    Type(ADMIN, "qm tokens list", ["ada", "queue-admin", "edsger", "operator"]),
    Say("A file with mistakes is refused as a whole, and all of them are told:"),
    File("speech.yaml", MISTAKES),
    Type(
        ADMIN,
        "qm apply -f speech.yaml",
        ["speech.yaml:5", "did you mean 'science'?", "speech.yaml:6", "speech.yaml:11", "nothing was changed"],
        fails=1,
    ),
    Submit(
        [
            train("language", "pretrain-1", 17, "lin"),
        ],
        {"language/pretrain-1": "running"},
    ),
    Submit([train("research", "ablation", 7, "rosa")], {"research/ablation": "running"}),
    Submit([train("vision", "segmentation", 12, "vera")], {"vision/segmentation": "running"}),
    Submit([train("language", "pretrain-2", 15, "lin")], {"language/pretrain-2": "running"}),
    Submit([train("research", "sweep", 8, "rosa")], {"research/sweep": "waiting"}),
    Say("Jobs arrive. Language uses more than its own; the others lend it what they leave idle:"),
    Type(ADMIN, "qm queues", ["language", "256"]),
    Say("### Why is my job waiting? (team lead)"),
    Type(LEAD, "qm workloads --cohort science", ["research/sweep", "waiting"]),
    Type(
        LEAD,
        "qm explain research/sweep",
        ["position 1 of 1", "24 nvidia.com/gpu short", "held by language/pretrain-1", "goes when"],
    ),
    Say("She makes it the most urgent one of her queue. What is outside of her cohort she may not touch:"),
    Type(LEAD, "qm reprioritise research/sweep high --reason 'for the review on Friday'", ["priority class high"]),
    Type(LEAD, "qm evict language/pretrain-2 --reason 'we need it'", fails=1),
    Say("Within `science` she may give quota from one queue to the other, but no more than it has:"),
    File("more.yaml", queue("research", "science", 160), shown=False),
    Type(LEAD, "qm apply -f more.yaml --reason 'more for research'", ["256"], fails=1),
    File("shift.yaml", queue("research", "science", 160) + "---\n" + queue("vision", "science", 96), shown=False),
    Type(LEAD, "qm diff -f shift.yaml", ["128 -> 160", "128 -> 96"]),
    Type(LEAD, "qm apply -f shift.yaml --reason 'the review needs more than vision'", ["revision 2"]),
    Say("The job still waits: language has what is idle, and does not have to give it back."),
    Say("### Who would be hurt? (platform admin)"),
    File("reclaim.yaml", queue("research", "science", 160, "Any"), shown=False),
    Type(
        ADMIN,
        "qm plan -f reclaim.yaml",
        ["reclaimWithinCohort", "could preempt", "language/pretrain-2", "would start", "research/sweep"],
    ),
    Type(ADMIN, "qm apply -f reclaim.yaml --if-plan {hash} --reason 'owners may take back'", ["revision 3"]),
    Until({"research/sweep": "running", "language/pretrain-2": "waiting"}),
    Say("Language gives back what it had borrowed, and its job waits in its place:"),
    Type(ADMIN, "qm workloads --state waiting", ["language/pretrain-2"]),
    Type(LEAD, "qm history research/sweep", ["admitted to research", "reprioritise"]),
    Say("### New cables (SRE)"),
    Type(SRE, "qm drain flavor h100 --let-finish --reason 'new cables in row 3'", ["Hold"]),
    Type(SRE, "qm stops", ["new cables in row 3"]),
    Type(
        SRE,
        "qm explain language/pretrain-2",
        ["is stopped", "new cables in row 3", "--undo", "24 nvidia.com/gpu short"],
    ),
    Type(SRE, "qm drain flavor h100 --undo --reason 'cables are in'"),
    Say("A job that fills the log is stopped and held until its user has looked at it:"),
    Type(SRE, "qm hold vision/segmentation --reason 'fills the log disk'", ["held"]),
    Until({"vision/segmentation": "held", "language/pretrain-2": "running"}),
    Type(SRE, "qm explain vision/segmentation", ["fills the log disk", "goes when it is released"]),
    Type(SRE, "qm release vision/segmentation --reason 'log level is lowered'"),
    Until({"vision/segmentation": "waiting"}),
    Say("Its place was given to `language/pretrain-2` meanwhile, whose nodes are to get new memory anyway:"),
    Type(SRE, "qm evict language/pretrain-2 --requeue-after 10m --reason 'nodes get new memory'", ["draining"]),
    Until({"vision/segmentation": "running", "language/pretrain-2": "waiting"}),
    Type(SRE, "qm history language/pretrain-2", ["InCohortReclamation", "nodes get new memory"]),
    Say("The configuration is not his:"),
    Type(SRE, "qm apply -f company.yaml", fails=1),
    Say("### Evening: what was changed, and back (platform admin)"),
    Type(ADMIN, "qm revisions", ["owners may take back", "the review needs more than vision", "three teams"]),
    Type(ADMIN, "qm plan --rollback 2", ["reclaimWithinCohort"]),
    Type(ADMIN, "qm rollback 2 --if-plan {hash} --reason 'only for today'", ["revision"]),
    Type(ADMIN, "qm usage science", ["256"]),
    Type(ADMIN, "qm audit --who token:ada", ["reprioritise", "for the review on Friday"]),
    Type(ADMIN, "qm audit --object workload/vision/", ["fills the log disk", "log level is lowered"]),
)
