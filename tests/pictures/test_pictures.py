"""The pictures in docs/ show what the product does. `python -m pytest tests/pictures --draw` draws them anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from queue_manager.store.store import Store
from tests.pictures.scenes import SCENES, Scene, played

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.mark.parametrize("scene", [pytest.param(scene, id=scene.name) for scene in SCENES])
async def test_a_picture_of_the_docs_is_what_is_there_once_its_jobs_run(
    store: Store, scene: Scene, request: pytest.FixtureRequest
) -> None:
    drawn = await played(scene, store)
    file = FOLDER / f"{scene.name}.svg"
    if request.config.getoption("--draw"):
        file.write_text(drawn)
    assert file.read_text() == drawn
