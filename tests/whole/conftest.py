"""Fixtures for tests of the whole: a daemon's folder, and the adversarial server."""

import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capd.adapters.model.minilm import MODEL, MiniLM
from capd.adapters.model.vector_cache import VectorCache
from capd.adapters.routing_files import background_messages
from support.programs import HOSTILE_SERVER
from whole_daemon import Home, home_of_its_own


@pytest.fixture(scope="session")
def background_vectors(pytestconfig: pytest.Config) -> Path:
    """The vectors that a daemon makes of capd's own texts before its first turn, as it saves them.

    They cost a daemon with an empty cache a second of the processor, and are kept for later runs.
    """
    texts = background_messages()
    named = hashlib.sha256("\0".join([MODEL.key, *texts]).encode()).hexdigest()
    file = pytestconfig.rootpath / ".pytest_cache" / "d" / "vectors" / f"{named}.bin"
    cache = VectorCache(file, MODEL.key, MODEL.dimensions)
    if len(cache) != len(set(texts)):
        cache.put(dict(zip(texts, MiniLM().embed(texts), strict=True)))
    return file


@pytest.fixture
def home(background_vectors: Path) -> Iterator[Home]:
    """A folder whose daemons have its own tap alone, and the cache of an earlier daemon."""
    with home_of_its_own(is_shipped=False) as made:
        (made.folder / "cache").mkdir(mode=0o700)
        shutil.copy(background_vectors, made.folder / "cache" / "vectors.bin")
        yield made


@pytest.fixture
def shipped_home() -> Iterator[Home]:
    """An empty folder, as a user's first daemon finds it: it has the starter tap, too."""
    with home_of_its_own() as made:
        yield made


@pytest.fixture
def evil_server() -> list[str]:
    """The command of the adversarial server, without its modes."""
    return [sys.executable, str(HOSTILE_SERVER)]
