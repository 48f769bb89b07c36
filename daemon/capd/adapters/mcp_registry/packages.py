"""Downloads packages from the user's own index, checks them, and stores them by their digest.

    npm    the tarball whose SHA-512 the registry gives as `dist.integrity`
    PyPI   a wheel that fits any platform, otherwise the source, with the sha256 of its index
    image  no file: the digest of the manifest, by which it is run

capd later starts the very file that this module has checked, so a package that is replaced in its
registry afterwards is never run. Files are in `<data>/packages/<sha256>/`.
"""

import base64
import binascii
import hashlib
import html.parser
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
import trio

from capd.adapters.mcp_registry.fetching import Digests, Fetcher, FetchError
from capd.adapters.mcp_registry.package_indexes import NPM, NpmSettings
from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern
from capd.core.mcp_registry.resolution import LOCAL_HOSTS, Artifact, Resolution, image_of
from capd_protos.places import make_folders

MOST_INDEX_BYTES = 64 << 20
MOST_PACKAGE_BYTES = 256 << 20
MOST_FILES = 20_000
_FILE_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,200}")
_PROGRAM = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_ANY_WHEEL = lazy_pattern(r"-(?:py3|py2\.py3)-none-any\.whl")
_SIMPLE = "application/vnd.pypi.simple.v1+json"
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json,"
    " application/vnd.docker.distribution.manifest.list.v2+json,"
    " application/vnd.docker.distribution.manifest.v2+json"
)
_HUB = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}
_CHALLENGE = lazy_pattern(r'(\w+)="([^"]*)"')
_UNAUTHORIZED = 401


class PackageError(CapdError):
    """A package cannot be downloaded; the text continues a sentence that begins with its name."""


class SwappedError(PackageError):
    """A download differs from what its registry, its entry or an earlier download promised."""


@dataclass(frozen=True, slots=True)
class PackagePlaces:
    """The folder in which packages are stored, and the indexes to download them from."""

    folder: Path
    """`<data>/packages`."""
    npm: NpmSettings
    indexes: list[str]


async def artifact(
    resolution: Resolution, places: PackagePlaces, fetcher: Fetcher, recorded: str = ""
) -> Artifact:
    """Return the package of `resolution`, which says how to start a registry's server.

    The package is downloaded from an index in `places`, and checked. Of an image, only the manifest
    is downloaded, for its digest. A remote server has an empty artifact. `recorded` is the
    integrity from an earlier download, which must be the same; empty if there was none.

    Raises:
        PackageError: it cannot be downloaded.
        SwappedError: its digest is wrong. Nothing of it was run or kept.
    """
    try:
        if resolution.kind == "npm":
            return await _npm(resolution, places, fetcher, recorded)
        if resolution.kind == "pypi":
            return await _python(resolution, places, fetcher, recorded)
        if resolution.kind == "oci":
            return await _image(resolution, fetcher, recorded)
    except FetchError as error:
        raise PackageError(f"cannot be fetched: {error}") from None
    except OSError as error:
        raise PackageError(f"cannot be kept in {places.folder}: {error.strerror}") from None
    return Artifact("")


async def _npm(
    resolution: Resolution, places: PackagePlaces, fetcher: Fetcher, recorded: str
) -> Artifact:
    name, version = resolution.identifier, resolution.package_version
    base = places.npm.registry(name)
    headers = {"accept": "application/vnd.npm.install-v1+json", **places.npm.headers(base)}
    answer = await _indexed(fetcher, f"{base}/{name.replace('/', '%2f')}", headers)
    if answer is None:
        raise PackageError(f"is not in {_host(base)}")
    versions = _member(_decoded(answer), "versions")
    manifest = _member(versions, version)
    if not manifest:
        raise PackageError(f"has no version {version} in {_host(base)}")
    dist = _member(manifest, "dist")
    integrity = _sha512(str(dist.get("integrity") or ""))
    if not integrity:
        raise PackageError("has no SHA-512 in its registry, so nothing of it could be checked")
    _refuse_other(integrity, recorded)
    url = _own_host(str(dist.get("tarball") or ""), base)
    is_same_host = _host(url) == _host(base)

    def check(digests: Digests) -> None:
        found = "sha512-" + base64.b64encode(digests.sha512).decode()
        if found != integrity:
            raise SwappedError(f"has {found}, and its registry says {integrity}")
        _check_sha256(digests, resolution)

    found = _File(f"{name.rpartition('/')[2]}-{version}.tgz", url, "")
    login = places.npm.headers(base) if is_same_host else {}
    file = await _kept(places.folder, found, fetcher, check, login)
    return Artifact(integrity, str(file), _npm_program(name, manifest))


async def _python(
    resolution: Resolution, places: PackagePlaces, fetcher: Fetcher, recorded: str
) -> Artifact:
    name, version = resolution.identifier, resolution.package_version
    project = re.sub(r"[-_.]+", "-", name).lower()
    for index in places.indexes:
        page = f"{index}/{project}/"
        headers = {"accept": f"{_SIMPLE}, text/html;q=0.2"}
        answer = await _indexed(fetcher, page, headers)
        if answer is None:
            continue
        files = await trio.to_thread.run_sync(_files_of, answer, page)
        break
    else:
        raise PackageError(f"is not in {', '.join(map(_host, places.indexes))}")
    chosen = _chosen(files, project, version)
    if not chosen.sha256:
        raise PackageError("has no sha256 in its index, so nothing of it could be checked")
    integrity = f"sha256:{chosen.sha256}"
    _refuse_other(integrity, recorded)

    def check(digests: Digests) -> None:
        if digests.sha256 != chosen.sha256:
            raise SwappedError(f"has sha256:{digests.sha256}, and its index says {integrity}")
        _check_sha256(digests, resolution)

    file = await _kept(places.folder, chosen, fetcher, check, {})
    return Artifact(integrity, str(file), name)


async def _image(resolution: Resolution, fetcher: Fetcher, recorded: str) -> Artifact:
    image = image_of(resolution)
    host = _HUB.get(image.host, image.host)
    name = host.rpartition(":")[0] or host
    base = f"{'http' if name in LOCAL_HOSTS else 'https'}://{host}"
    url = f"{base}/v2/{image.path}/manifests/{image.digest or image.tag}"
    headers = {"accept": _MANIFESTS}
    answer = await fetcher.get(url, MOST_INDEX_BYTES, headers, (200, _UNAUTHORIZED))
    if answer.status == _UNAUTHORIZED:
        token = await _token(answer.headers.get("www-authenticate", ""), base, fetcher)
        headers["authorization"] = f"Bearer {token}"
        answer = await fetcher.get(url, MOST_INDEX_BYTES, headers)
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    said = image.digest or answer.headers.get("docker-content-digest", "") or digest
    if digest != said:
        raise SwappedError(f"has {digest}, and its registry says {said[:80]}")
    _refuse_other(digest, recorded)
    return Artifact(digest, digest=digest)


async def _token(challenge: str, base: str, fetcher: Fetcher) -> str:
    """Return a token for reading a public image, by the token protocol of image registries.

    `challenge` is the registry's `WWW-Authenticate` header, and `base` the registry's URL.
    """
    said = dict(_CHALLENGE.findall(challenge[:4000]))
    realm = said.pop("realm", "")
    if not realm.startswith("https://") and _host(realm) != _host(base):
        raise PackageError("is in a registry that asks for a login that is not https")
    query = "&".join(f"{key}={value}" for key, value in said.items() if key in {"service", "scope"})
    answer = await fetcher.get(f"{realm}?{query}", 1 << 20)
    found = _decoded(answer.body)
    return str(found.get("token") or found.get("access_token") or "")


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    url: str
    sha256: str
    is_yanked: bool = False


def _files_of(answer: bytes, page: str) -> list[_File]:
    """Return the files that a page of a Python index lists, in JSON (PEP 691) or HTML (PEP 503).

    `answer` is the page, and `page` its URL.
    """
    if answer.lstrip()[:1] == b"{":
        listed = _decoded(answer).get("files")
        found = []
        for each in (listed if isinstance(listed, list) else [])[:MOST_FILES]:
            if isinstance(each, dict):
                sha256 = str(_member(each, "hashes").get("sha256") or "").lower()
                url = urljoin(page, str(each.get("url") or ""))
                is_yanked = bool(each.get("yanked"))
                found.append(_File(str(each.get("filename") or ""), url, sha256, is_yanked))
        return found
    parser = _Links(page)
    parser.feed(answer.decode("utf-8", "replace"))
    return parser.files


class _Links(html.parser.HTMLParser):
    """Collects the links of an index page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.files: list[_File] = []
        self._page = page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add the link of the tag, if it is an `a` tag."""
        said = dict(attrs)
        href = said.get("href")
        if tag != "a" or not href or len(self.files) >= MOST_FILES:
            return
        url, _, fragment = urljoin(self._page, href).partition("#")
        sha256 = fragment.removeprefix("sha256=").lower() if "sha256=" in fragment else ""
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        self.files.append(_File(name, url, sha256, "data-yanked" in said))


def _chosen(files: list[_File], project: str, version: str) -> _File:
    """Return the file of `version` to install: a wheel that fits any platform, else the source."""
    of_version = [each for each in files if _is_release_file(each.name, project, version)]
    if not of_version:
        raise PackageError(f"has no version {version} in its index")
    wheels = [each for each in of_version if _ANY_WHEEL.search(each.name)]
    sources = [each for each in of_version if each.name.endswith(".tar.gz")]
    for each in (*wheels, *sources):
        if each.is_yanked:
            raise PackageError(f"has withdrawn version {version} (yanked): name another version")
        if not _FILE_NAME.fullmatch(each.name):
            raise PackageError("has a file whose name is not one of a package")
        return each
    raise PackageError(
        "has files for single platforms only, which capd does not choose among:"
        f" capd add NAME -- uvx {project}=={version}"
    )


def _is_release_file(file: str, project: str, version: str) -> bool:
    if file.endswith(".whl"):
        name, _, rest = file.partition("-")
        found = rest.partition("-")[0]
    else:
        name, _, found = file.removesuffix(".tar.gz").rpartition("-")
    return re.sub(r"[-_.]+", "-", name).lower() == project and _release(found) == _release(version)


def _release(version: str) -> str:
    """Return a version in a normal form: `1.0.0` and `1.0` become equal, and `_` becomes `+`."""
    plain = version.lower().replace("_", "+")
    head, plus, local = plain.partition("+")
    return re.sub(r"(?:\.0)+$", "", head) + plus + local


async def _indexed(fetcher: Fetcher, url: str, headers: Mapping[str, str]) -> bytes | None:
    try:
        return (await fetcher.get(url, MOST_INDEX_BYTES, headers)).body
    except FetchError as error:
        if error.status in {404, 410}:
            return None
        raise


async def _kept(
    folder: Path,
    wanted: _File,
    fetcher: Fetcher,
    check: Callable[[Digests], None],
    headers: Mapping[str, str],
) -> Path:
    """Download a file, check it, and move it into the folder for its digest; return its path.

    `check` gets the digests of the download, and raises if they are wrong.
    """
    name = wanted.name
    if not _FILE_NAME.fullmatch(name):
        raise PackageError("has a file whose name is not one of a package")
    make_folders(folder)
    made = Path(tempfile.mkdtemp(dir=folder, prefix=".fetching."))
    try:
        digests = await fetcher.download(wanted.url, made / name, MOST_PACKAGE_BYTES, headers)
        check(digests)
        (made / name).chmod(0o400)
        place = folder.resolve() / digests.sha256
        if not (place / name).exists():
            place.mkdir(mode=0o700, exist_ok=True)
            os.replace(made / name, place / name)  # noqa: PTH105 - atomically, over a leftover
        return place / name
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _check_sha256(digests: Digests, resolution: Resolution) -> None:
    if resolution.file_sha256 and digests.sha256 != resolution.file_sha256:
        raise SwappedError(
            f"has sha256:{digests.sha256}, and its entry says sha256:{resolution.file_sha256}"
        )


def _refuse_other(integrity: str, recorded: str) -> None:
    if recorded and integrity != recorded:
        raise SwappedError(
            f"is {integrity} in its registry, and the same version was {recorded} when it was added"
        )


def _sha512(said: str) -> str:
    """Return the SHA-512 in the subresource integrity `said`; empty if there is none."""
    for each in said[:4000].split():
        kind, _, value = each.partition("?")[0].partition("-")
        try:
            is_whole = len(base64.b64decode(value, validate=True)) == hashlib.sha512().digest_size
        except (binascii.Error, ValueError):
            continue
        if kind == "sha512" and is_whole:
            return f"sha512-{value}"
    return ""


def _npm_program(name: str, manifest: Mapping[str, Any]) -> str:
    """Return the program of an npm package that `npx` would run; `manifest` is its `package.json`.

    It is the program with the package's name, or the only one. Names of one file count as one.
    """
    short = name.rpartition("/")[2]
    written = manifest.get("bin")
    programs = {short: written} if isinstance(written, str) else written
    names = list(programs) if isinstance(programs, dict) else []
    same = (
        len({str(programs[each]) for each in names}) == 1 if isinstance(programs, dict) else False
    )
    chosen = short if short in names else names[0] if names and (len(names) == 1 or same) else ""
    if not chosen or not _PROGRAM.fullmatch(chosen):
        raise PackageError("does not say which of its programs is the server")
    return chosen


def _own_host(url: str, base: str) -> str:
    """Return the address of a tarball in the registry that was asked, whose address is `base`.

    If `url` is at npm's own host and `base` is not, the result is the path of `url` below `base`.
    Otherwise it is `url` unchanged.

    Raises:
        PackageError: the result would be `url`, and its scheme is neither https nor that of `base`.
    """
    if _host(url) == _host(NPM) and _host(base) != _host(NPM):
        return base + urlsplit(url).path
    if urlsplit(url).scheme not in {"https", urlsplit(base).scheme}:
        raise PackageError("has a tarball at an address that is not https")
    return url


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise PackageError("is described by its registry in a form that is not JSON") from None
    return found if isinstance(found, dict) else {}


def _member(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}
