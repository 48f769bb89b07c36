"""Reads taps from disk: the user's list of them, and the files of each.

A tap is a folder or a git repository with capabilities, skills or memories. A provider is one
implementation of a capability. If a tap's folder cannot be read, an error is raised, and the caller
keeps the tap's last state. Reading never uses the network (docs/design/catalog.md).
"""

import hashlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import msgspec

import capd
from capd.adapters.file_texts import PathText, file_name, file_text
from capd.adapters.memory_files import MEMORIES, read_memories
from capd.adapters.model.minilm import ROUTING
from capd.adapters.parsed_taps import ParsedTaps
from capd.adapters.parsing.jobs import DIRECT, ReadCapability, Reader, ReadToolSnapshot
from capd.adapters.regular_files import opened_regular, settings_text
from capd.adapters.skill_files import SKILLS, read_skills
from capd.adapters.unchanged_files import mark_of_file
from capd.core.errors import CapdError
from capd.core.taps.catalog import Tap
from capd.core.taps.tap_format import CapabilityFiles, CapabilityRead
from capd.core.taps.tap_vectors import FILE as VECTORS
from capd.core.taps.tap_vectors import (
    TapVectors,
    TapVectorsError,
    checked_head,
    largest_bytes,
    read_vectors,
)
from capd.core.taps.tool_snapshot import FILE as SNAPSHOT
from capd.core.taps.tool_snapshot import MOST_BYTES as LARGEST_SNAPSHOT
from capd.core.taps.tool_snapshot import SnapshotRead
from capd_protos.types import CapabilityName, Finding, TapName

STARTER = TapName("starter")
OWN_FOLDER = "own"
"""The folder beside the list of taps into which `capd add` writes."""
MOST_FILES = 64
"""The most TOML files that are read in one capability's folder."""


_BROKEN = 'taps = [name = "'
"""A mistake that an earlier capd wrote when a tap was added to an empty list."""
_REPAIR = "an earlier capd wrote it so: `capd tap list` repairs it"


class TapUnreadableError(CapdError):
    """A tap, or the list of taps, cannot be read; the text says which and why."""


@dataclass(frozen=True, slots=True)
class TapPlace:
    """A tap on the user's list: its name, its folder, and the providers chosen in it."""

    name: TapName
    path: Path
    providers: Mapping[CapabilityName, str] = field(default_factory=dict)
    """The providers that the user chose for capabilities, instead of their defaults."""
    within: Path | None = None
    """The folder that must contain all files of the tap, if that is not `path`."""

    @property
    def root(self) -> Path:
        """The folder that must contain all skills and memories of the tap.

        A link that leads out of this folder is not followed.
        """
        return self.within or self.path


class _TapEntry(msgspec.Struct):
    name: str
    path: PathText


class _TapList(msgspec.Struct):
    taps: list[_TapEntry] = []
    providers: dict[str, str] = {}
    """By `tap/name`, because a bare name could mean another capability when the order of taps
    changes."""
    starter: bool = True
    """Whether the starter tap is used as well."""


def starter_place() -> TapPlace:
    """Return the starter tap, whose folder is in the wheel or in the checkout."""
    package = Path(capd.__file__).parent
    installed = package / "starter_tap"
    return TapPlace(
        STARTER, installed if installed.is_dir() else package.parents[1] / "taps/starter"
    )


def tap_places(list_file: Path) -> list[TapPlace]:
    """Return the taps in order of precedence: the user's as added, then `starter` if wanted.

    `list_file` is the user's list of taps.

    Raises:
        TapUnreadableError: the list exists and cannot be used.
    """
    text = ""
    try:
        text = settings_text(list_file)
        listed = msgspec.convert(tomllib.loads(text), _TapList)
    except FileNotFoundError:
        listed = _TapList()
    except RecursionError:
        raise TapUnreadableError(f"{list_file}: nested too deeply") from None
    # ValueError, because tomllib raises it for a number of 5000 digits.
    except (OSError, ValueError, msgspec.ValidationError) as error:
        hint = f" ({_REPAIR})" if _BROKEN in text else ""
        raise TapUnreadableError(f"{list_file}: {error}{hint}") from None
    places = [TapPlace(TapName(entry.name), Path(entry.path)) for entry in listed.taps]
    names = [*(place.name for place in places), STARTER]
    if listed.starter:
        places.append(starter_place())
    if twice := [name for name in names if names.count(name) > 1]:
        raise TapUnreadableError(f"{list_file}: two taps are named {twice[0]!r}")
    return [replace(place, providers=_chosen(listed.providers, place.name)) for place in places]


def is_own(place: TapPlace, list_file: Path) -> bool:
    """Tell whether only the user and capd itself have written the tap at `place`.

    `list_file` is the user's list of taps.
    """
    return place.name == STARTER or place.path == list_file.parent / OWN_FOLDER


def read_tap(place: TapPlace, reader: Reader = DIRECT, known: ParsedTaps | None = None) -> Tap:
    """Return the tap at `place`; `reader` parses its files.

    Results for unchanged files come from the cache `known`.

    Raises:
        TapUnreadableError: there is no folder of capabilities, skills or memories, or the tap's
            folder was replaced while it was read.
    """
    digest = hashlib.sha256()
    reads = []
    spent: list[Finding] = []
    if "\0" in str(place.path):
        raise TapUnreadableError(f"tap {place.name}: its path has a null character")
    folder = _identity(place.path)
    try:
        for folder_name in _capability_folders(place):
            if reader.is_spent:
                spent.append(_out_of_time(f"capabilities/{file_name(Path(folder_name))}"))
                break
            part, read = _read_capability(place, folder_name, reader, known)
            digest.update(part)
            reads.append(read)
    except OSError as error:
        raise TapUnreadableError(f"tap {place.name}: {_why_unread(place, error)}") from None
    names = {read.name for read in reads}
    for name, provider in place.providers.items():
        if name not in names:
            missing = ReadCapability(place.name, name, f"capabilities/{name}", {}, provider)
            reads.append(missing.run())
    skill_reads, findings = read_skills(place.name, place.path, reader)
    for skill in skill_reads:
        digest.update(f"{skill.path}\0{skill.revision}\0".encode())
    memory_reads, more = read_memories(place.name, place.path / MEMORIES, reader, root=place.root)
    for memory in memory_reads:
        digest.update(f"{memory.path}\0{memory.revision}\0".encode())
    snapshot, data = _tool_snapshot(place, reader)
    digest.update(b"tools\0" + data)
    vectors_digest, wrong_vectors = _known_vectors(place, known)
    digest.update(f"vectors\0{vectors_digest}".encode())
    # A tap that is removed during the read would look as if its capabilities were deleted.
    if _identity(place.path) != folder:
        reason = f"{place.path} was moved or replaced while it was read"
        raise TapUnreadableError(f"tap {place.name}: {reason}")
    return Tap(
        name=place.name,
        path=str(place.path),
        revision=digest.hexdigest()[:12],
        reads=tuple(reads),
        scripts=_scripts(place.path / "deps"),
        skill_reads=skill_reads,
        tap_findings=(*spent, *findings, *more, *snapshot.findings, *wrong_vectors),
        memory_reads=memory_reads,
        tool_lists=snapshot.lists,
        vectors_digest=vectors_digest,
    )


def _why_unread(place: TapPlace, error: OSError) -> str:
    # Not `Path.exists`, which raises for a name that is too long.
    if not os.path.exists(place.path):  # noqa: PTH110
        return f"there is no folder {place.path}"
    if isinstance(error, FileNotFoundError):
        return f"{place.path} has no folder capabilities/, {SKILLS}/ or {MEMORIES}/"
    return f"{error.filename or place.path}: {error.strerror or error}"


def capability_files(place: TapPlace) -> Iterator[CapabilityFiles]:
    """Yield the files of each capability's folder in the tap at `place`, sorted by name.

    Raises:
        OSError: they cannot be read.
    """
    for name in _capability_folders(place):
        yield _files_of(place, name)


def _capability_folders(place: TapPlace) -> list[str]:
    root = place.path / "capabilities"
    names = sorted(_folder_names(root))
    if place.within is None:
        return names
    return [name for name in names if _is_within(root / name, place.within)]


def _files_of(place: TapPlace, name: str) -> CapabilityFiles:
    folder = place.path / "capabilities" / name
    capability = file_name(Path(name))
    texts = {file_name(Path(f.name)): file_text(f) for f in _provider_files(folder)}
    return CapabilityFiles(CapabilityName(capability), f"capabilities/{capability}", texts)


def _read_capability(
    place: TapPlace, name: str, reader: Reader, known: ParsedTaps | None
) -> tuple[bytes, CapabilityRead]:
    """Return a digest of the files of a tap's capability `name`, and the parsed capability.

    `reader` parses the files; a result for unchanged files comes from the cache `known`.
    """
    folder = f"{place.path}/capabilities/{name}"
    # Ten thousand paths take 0.1 s, and hardly any tap has providers chosen.
    provider = (
        place.providers.get(CapabilityName(file_name(Path(name))), "") if place.providers else ""
    )
    key = f"{place.name}\0{folder}\0{provider}"
    # Taken before the files are read, so that the next reload notices a change meanwhile.
    mark = known.folders.mark(folder, ".toml") if known is not None else 0
    found = known.capabilities.get(key, mark) if known is not None else None
    if found is not None:
        return found
    files = _files_of(place, name)
    digest = hashlib.sha256()
    for file, text in files.texts.items():
        digest.update(f"{files.name}/{file}\0{text}\0".encode())
    job = ReadCapability(place.name, files.name, files.path, files.texts, provider)
    made = digest.digest(), reader.read(job)
    if known is not None:
        # An unreadable capability is not cached, because it may be readable the next time.
        known.capabilities.put(key, mark if made[1].capability is not None else 0, made)
    return made


def tap_vectors(tap: Tap) -> TapVectors | None:
    """Return the vectors that `tap` ships; None if there are none that can be used.

    That is so if it has none, or if the file cannot be read, is invalid, or has changed since the
    tap was read. Blocks.
    """
    if not tap.vectors_digest:
        return None
    try:
        data = _file_bytes(Path(tap.path) / VECTORS, largest_bytes(ROUTING.dimensions))
        if hashlib.sha256(data).hexdigest() == tap.vectors_digest:
            return read_vectors(data, ROUTING.key, ROUTING.dimensions)
    except (OSError, TapVectorsError):
        # The file has changed since; the next reload reports what is wrong with it.
        return None
    return None


def _known_vectors(place: TapPlace, known: ParsedTaps | None) -> tuple[str, tuple[Finding, ...]]:
    if known is None:
        return _checked_vectors(place)
    file = str(place.path / VECTORS)
    mark = mark_of_file(file)
    found = known.vectors.get(file, mark)
    if found is None:
        found = _checked_vectors(place)
        known.vectors.put(file, mark, found)
    return found


def _checked_vectors(place: TapPlace) -> tuple[str, tuple[Finding, ...]]:
    """Return the digest of a tap's file of vectors, or a finding that says what is wrong."""
    file = place.path / VECTORS
    if place.within is not None or not file.is_file() or file.is_symlink():
        # Vectors in a project are ignored; its few phrases are embedded.
        return "", ()
    try:
        data = _file_bytes(file, largest_bytes(ROUTING.dimensions))
        if place.name == STARTER:
            # The file comes with capd. Its numbers are read with the first message: reading them
            # imports numpy, which takes a quarter of the memory of an idle daemon.
            checked_head(data, ROUTING.key, ROUTING.dimensions)
        else:
            read_vectors(data, ROUTING.key, ROUTING.dimensions)
    except OSError as error:
        return "", (Finding(VECTORS, 0, f"left out: {error}", "warning"),)
    except TapVectorsError as error:
        return "", (Finding(VECTORS, 0, str(error), "warning"),)
    return hashlib.sha256(data).hexdigest(), ()


def _file_bytes(file: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file; of a larger one, the first `most_bytes` + 1 bytes."""
    with (
        opened_regular(file, os.O_NOFOLLOW) as (descriptor, _),
        os.fdopen(os.dup(descriptor), "rb") as stream,
    ):
        return stream.read(most_bytes + 1)


def _tool_snapshot(place: TapPlace, reader: Reader) -> tuple[SnapshotRead, bytes]:
    file = place.path / SNAPSHOT
    if place.within is not None or not file.is_file() or file.is_symlink():
        # A snapshot in a project is ignored; only its servers themselves list their tools.
        return SnapshotRead(), b""
    try:
        data = _file_bytes(file, LARGEST_SNAPSHOT)
    except OSError as error:
        return ReadToolSnapshot(b"").unread(str(error)), b""
    return reader.read(ReadToolSnapshot(data)), data


def _out_of_time(path: str) -> Finding:
    reason = "it and all after it are left out: what is before takes too long to read"
    return Finding(path, 0, reason)


def _is_within(folder: Path, root: Path) -> bool:
    return Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(root))


def _identity(root: Path) -> tuple[int, int] | None:
    try:
        status = root.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _folder_names(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        # A tap may be skills or memories alone.
        if any((root.parent / part).is_dir() for part in (SKILLS, MEMORIES)):
            return []
        raise


def _chosen(providers: Mapping[str, str], tap: TapName) -> dict[CapabilityName, str]:
    split = {key.rpartition("/"): provider for key, provider in providers.items()}
    return {
        CapabilityName(name): provider
        for (of, slash, name), provider in split.items()
        if slash and of == tap
    }


def _provider_files(folder: Path) -> list[Path]:
    # Only regular files and links: reading a pipe would block for ever.
    found = (f for f in folder.glob("*.toml") if f.is_symlink() or f.is_file())
    return sorted(islice(found, MOST_FILES))


def _scripts(root: Path) -> dict[str, str]:
    return {f"{s.parent.name}/{s.stem}": str(s) for s in sorted(root.glob("*/*.sh"))}
