"""Why everybody waits, by kind alone: the same as the words say, without working them out."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from queue_manager.engine.configuration import Configuration, Node
from queue_manager.engine.decision import HOPELESS, Reason
from queue_manager.engine.explain import Explainer
from queue_manager.engine.outlook import FOR_GOOD
from queue_manager.engine.workload import Workload
from tests.engine.generate import batches, configurations, engine_of, nodes
from tests.engine.test_shelves import busy, configuration, tries

__all__ = ["tries"]

QUOTA = (Reason.WAITING_FOR_QUOTA, False)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(configurations(), nodes(), batches(4, 12))
def test_kinds_are_those_of_the_words(c: Configuration, n: list[Node], b: list[Workload]) -> None:
    engine = engine_of(c, n, [replace(workload, may_preempt=False) for workload in b])
    engine.plan(1)
    explainer = Explainer(engine._state)
    found = engine.outlook()
    for uid, told in found.items():
        words = explainer.tell(engine._state.records[uid])
        for_good = words.reason in HOPELESS or any(blocker.type in FOR_GOOD for blocker in words.blockers)
        assert told == (words.reason, for_good)


def test_who_lacks_what_others_use_is_told_without_a_try(tries: list[str]) -> None:
    engine = busy(3)
    tries.clear()
    assert engine.outlook() == dict.fromkeys(("waits0", "waits1", "waits2"), QUOTA)
    assert tries == []


def test_who_lacks_what_is_not_there_has_no_hope() -> None:
    engine = busy(1)
    engine.configure(configuration(2, cpus=0))
    engine.plan(2)
    assert engine.outlook()["waits0"].reason is Reason.EXCEEDS_MAX_QUOTA
