"""Python's cyclic garbage collector in a process that keeps hundreds of thousands of objects for as long as it runs.

Its full collections walk everything that lives, which takes as long as many passes, and finds next to nothing: rows,
objects and the engine's state are freed by reference counts.
"""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 20, 100)
"""Objects made before the young ones are looked at; young looks before a middle one; middle ones before a full one."""


def settle_garbage() -> None:
    """Once the state is read: what lives now is never looked at again, what is made later less often."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
