"""Where this user's npm and uv fetch packages from: variables first, then files.

npm     npm_config_registry, then `~/.npmrc` and the global npmrc: `registry`, `@scope:registry`,
        `//host/:_authToken` (https://docs.npmjs.com/cli/configuring-npm/npmrc)
uv      UV_INDEX, UV_EXTRA_INDEX_URL, UV_DEFAULT_INDEX, UV_INDEX_URL, then `uv.toml`
        (https://docs.astral.sh/uv/concepts/indexes/); the first index that has a package counts
"""

import base64
import binascii
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capd.core.lazy_patterns import lazy_pattern

NPM = "https://registry.npmjs.org"
PYPI = "https://pypi.org/simple"
_MOST_BYTES = 1 << 20
_VARIABLE = lazy_pattern(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class NpmSettings:
    """The settings of npm that say where packages come from, and with which login."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def registry(self, package: str) -> str:
        """Return the URL of the registry from which npm would fetch `package`."""
        scope = package.partition("/")[0] if package.startswith("@") else ""
        url = self.values.get(f"{scope}:registry", "") if scope else ""
        return (url or self.values.get("registry", "") or NPM).rstrip("/")

    def headers(self, url: str) -> dict[str, str]:
        """Return the headers of a request to `url`: a login, if npm has one for it."""
        place = "//" + url.partition("://")[2].rstrip("/") + "/"
        while place.count("/") > 2:  # noqa: PLR2004 - down to `//host/`
            token = self.values.get(f"{place}:_authToken", "")
            basic = self.values.get(f"{place}:_auth", "")
            user = self.values.get(f"{place}:username", "")
            secret = self.values.get(f"{place}:_password", "")
            if token:
                return {"authorization": f"Bearer {token}"}
            if basic:
                return {"authorization": f"Basic {basic}"}
            if user and secret:
                try:
                    clear = base64.b64decode(secret).decode()
                except (binascii.Error, UnicodeDecodeError):
                    return {}
                both = base64.b64encode(f"{user}:{clear}".encode()).decode()
                return {"authorization": f"Basic {both}"}
            place = place.rstrip("/").rpartition("/")[0] + "/"
        return {}


def npm_settings(environment: Mapping[str, str]) -> NpmSettings:
    """Return npm's settings of this user, from variables and files. Blocks."""
    lowered = {
        name.lower(): value
        for name, value in environment.items()
        if name.lower().startswith("npm_config_")
    }
    home = Path(environment.get("HOME") or Path.home())
    user = Path(lowered.get("npm_config_userconfig") or home / ".npmrc")
    shared = lowered.get("npm_config_globalconfig")
    files = [Path(shared)] if shared else [Path("/usr/etc/npmrc"), Path("/usr/local/etc/npmrc")]
    values: dict[str, str] = {}
    for file in (*files, user):
        for line in _text(file).splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith(("#", ";")):
                plain = value.strip().strip("\"'")
                values[key.strip()] = _VARIABLE.sub(
                    lambda match: environment.get(match[1], match[0]), plain
                )
    if registry := lowered.get("npm_config_registry"):
        values["registry"] = registry
    return NpmSettings(values)


def python_indexes(environment: Mapping[str, str]) -> list[str]:
    """Return the URLs of uv's package indexes, in the order in which to ask them. Blocks."""
    found: list[str] = []
    default = ""
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL"):
        found += [_url_of(each) for each in environment.get(name, "").split()]
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        default = default or _url_of(environment.get(name, "").strip())
    for file in _uv_files(environment):
        try:
            settings: dict[str, Any] = tomllib.loads(_text(file))
        except (ValueError, RecursionError):
            continue
        for each in settings.get("index") or ():
            if isinstance(each, dict) and isinstance(each.get("url"), str):
                if each.get("default") is True:
                    default = default or each["url"]
                elif each.get("explicit") is not True:
                    found.append(each["url"])
        more = settings.get("extra-index-url")
        found += [each for each in more if isinstance(each, str)] if isinstance(more, list) else []
        one = settings.get("index-url")
        default = default or (one if isinstance(one, str) else "")
    urls = [each.rstrip("/") for each in (*found, default or PYPI)]
    return list(dict.fromkeys(each for each in urls if each.startswith(("http://", "https://"))))


def _uv_files(environment: Mapping[str, str]) -> list[Path]:
    named = environment.get("UV_CONFIG_FILE")
    if named:
        return [Path(named)]
    home = Path(environment.get("HOME") or Path.home())
    user = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    return [user / "uv/uv.toml", Path("/etc/uv/uv.toml")]


def _url_of(text: str) -> str:
    """Return the URL of `name=URL`, or of a URL alone."""
    name, equals, url = text.partition("=")
    return url if equals and "/" not in name else text


def _text(file: Path) -> str:
    try:
        with open(os.fspath(file), "rb") as opened:  # noqa: PTH123 - a bounded read
            return opened.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
