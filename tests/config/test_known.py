"""Objects of the store that are read once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queue_manager.config.compiled import compile_objects, from_stored, stored_objects
from queue_manager.config.known import KnownObjects
from queue_manager.config.parse import parse

HERE = Path(__file__).parent


def rows(*files: str) -> list[Any]:
    """Objects of files as the store has them."""
    return [row for file in files for row in stored_objects(parse((HERE / file).read_text()).objects)]


@pytest.mark.parametrize("file", ["example.yaml", "kueue.yaml"])
def test_what_was_learned_from_a_file_is_what_the_store_would_say(file: str):
    read = parse((HERE / file).read_text(), file).objects
    known = KnownObjects()
    known.learn(stored_objects(read), read)
    found = known.read(rows(file))
    assert found.objects == from_stored(rows(file)).objects
    assert len(found.objects) > 5
    # Lines of that file mean nothing to who asks later.
    assert {(item.source.file, item.source.foreign) for item in found.objects} == {("", False)}


def test_an_object_is_read_again_only_when_it_says_something_else():
    known, before = KnownObjects(), rows("example.yaml")
    first = known.read(before).objects
    changed = [replace(row, labels={"by": "hand"}) if index == 3 else row for index, row in enumerate(before)]
    second = known.read(changed).objects
    assert [one is other for one, other in zip(first, second, strict=True)] == [
        index != 3 for index in range(len(before))
    ]
    assert second == from_stored(changed).objects


def test_one_that_is_gone_is_not_told_and_one_that_cannot_be_read_is_named():
    known, before = KnownObjects(), rows("example.yaml")
    known.read(before)
    broken = replace(before[0], spec={"nobody": "knows"})
    found = known.read([broken, *before[2:]])
    assert found == from_stored([broken, *before[2:]])
    assert len(found.errors) > 0
    assert len(found.objects) == len(before) - 2


def test_it_compiles_to_the_same():
    known, before = KnownObjects(), rows("example.yaml")
    known.read(before)
    after = before[:-1]
    assert known.compiled(after, 7) == compile_objects(after, 7)
