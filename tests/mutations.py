"""Breaks each rule once on purpose, in a copy, and sees whether a test notices: `python -m tests.mutations [WORD...]`.

Takes minutes; not part of any test run. The table is `mutations.yaml`; WORDs choose the rules whose text contains one
of them. Exit code 1 when a rule can be broken without a test failing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".yaml")
COPIED = ("queue_manager", "tests", "pyproject.toml")
DEFAULT_TESTS = (
    "tests/engine/test_scenarios.py",
    "tests/engine/test_properties.py",
    "tests/engine/test_explanations.py",
)
TIMEOUT = 300
"""Seconds after which a broken rule that makes a test run for ever counts as noticed."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule and how to break it: `old`, which stands once in `file`, becomes `new`."""

    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = DEFAULT_TESTS

    @property
    def occurrences(self) -> int:
        """How often the snippet stands in the code; a table that fits the code has 1 everywhere."""
        return (ROOT / self.file).read_text().count(self.old)


def read_table() -> list[Mutation]:
    """All rows of the table."""
    rows: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text())
    return [Mutation(**{**row, "tests": tuple(row.get("tests") or DEFAULT_TESTS)}) for row in rows]


def noticed(mutation: Mutation, copy: Path) -> bool:
    """Whether a test fails when the rule is broken in the copy, which is whole again afterwards."""
    path = copy / mutation.file
    text = path.read_text()
    path.write_text(text.replace(mutation.old, mutation.new))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests]
    try:
        run = subprocess.run(command, cwd=copy, capture_output=True, timeout=TIMEOUT, check=False)
        return run.returncode == 1
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(text)


def main(words: list[str]) -> int:
    chosen = [m for m in read_table() if not words or any(word in m.rule for word in words)]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy / name, ignore=ignored) if source.is_dir() else shutil.copy(source, copy)
        for mutation in chosen:
            if mutation.occurrences != 1:
                verdict = f"STANDS {mutation.occurrences} TIMES IN THE CODE"
            else:
                verdict = "noticed" if noticed(mutation, copy) else "NOT NOTICED"
            missed += verdict != "noticed"
            print(f"{verdict:12} {mutation.rule}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} broken rules noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
