"""Which kind of vectors routing compares: those of its profile's encoder."""

from contextlib import suppress
from pathlib import Path

import pytest
import trio

from capd.actors.registry.catalog_vectors import CatalogVectors, NotReadyError
from capd.adapters.model.minilm import MODEL, ROUTING
from capd.adapters.model.vector_cache import VectorCache
from capd.adapters.routing_files import read_profile
from capd.core.routing.gates import MINILM_INT8, RoutingProfile
from capd_protos.embedder import VectorSpace

from .fakes import RecordingBus
from .world import FakeEmbedder

PATIENCE = 10.0


async def spaces_of(profile: RoutingProfile, file: Path) -> set[VectorSpace]:
    """Compare a message once, with vectors that are kept in `file`; return what was asked for."""
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        embedder = FakeEmbedder(bus)
        await nursery.start(embedder.run)
        vectors = CatalogVectors(bus, file, profile)
        nursery.start_soon(vectors.follow)
        with suppress(NotReadyError):
            await vectors.compared(["show the last commits"])
        assert await vectors.until_ready(trio.current_time() + PATIENCE)
        await vectors.compared(["show the last commits"])
        nursery.cancel_scope.cancel()
    return embedder.spaces


@pytest.mark.parametrize(
    ("profile", "space"), [(read_profile(), "routing"), (MINILM_INT8, "plain")]
)
async def test_texts_and_messages_are_embedded_in_the_space_of_the_profile(
    tmp_path: Path, profile: RoutingProfile, space: VectorSpace
) -> None:
    assert await spaces_of(profile, tmp_path / "vectors.bin") == {space}


async def test_kept_vectors_of_one_space_are_not_used_in_the_other(tmp_path: Path) -> None:
    file = tmp_path / "vectors.bin"
    await spaces_of(MINILM_INT8, file)

    plain = VectorCache(file, MODEL.key, MODEL.dimensions)
    changed = VectorCache(file, ROUTING.key, ROUTING.dimensions)

    assert (len(plain) > 0, plain.reason) == (True, None)
    assert (len(changed), "another model made it" in (changed.reason or "")) == (0, True)
