"""Which variables a server gets: known families such as `LC_*`, and those of its definition.

The daemon's environment contains the variables of the user's session, including tokens and agent
sockets, and the control variables of systemd and capd. If a family contains secrets as well, its
harmless names are listed one by one: a pattern such as `UV_*` would let `UV_PUBLISH_TOKEN` through.

The variables of a definition come with their secrets: `core.servers.placeholders.resolved` has put
them in.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping

_LOCALE_PREFIX = "LC_"
_USER = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
_LOCALE = {"LANG", "LANGUAGE", "TZ"}
_TEMPORARY = {"TEMP", "TMP", "TMPDIR"}
_XDG = {
    "XDG_CACHE_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_CURRENT_DESKTOP",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_TYPE",
    "XDG_STATE_HOME",
}
_DISPLAY = {"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"}
_PROXY = {"ALL_PROXY", "FTP_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"}
_CERTIFICATES = {
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_SYSTEM_CA",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
}
_NPM = {
    "NPM_CONFIG_CACHE",
    "NPM_CONFIG_CAFILE",
    "NPM_CONFIG_GLOBALCONFIG",
    "NPM_CONFIG_HTTPS_PROXY",
    "NPM_CONFIG_NOPROXY",
    "NPM_CONFIG_OFFLINE",
    "NPM_CONFIG_PREFER_OFFLINE",
    "NPM_CONFIG_PREFIX",
    "NPM_CONFIG_PROXY",
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_STRICT_SSL",
    "NPM_CONFIG_USERCONFIG",
}
_PIP = {
    "PIP_CACHE_DIR",
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_PROXY",
    "PIP_TRUSTED_HOST",
}
_UV = {
    "UV_CACHE_DIR",
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_KEYRING_PROVIDER",
    "UV_NATIVE_TLS",
    "UV_NO_INDEX",
    "UV_OFFLINE",
    "UV_PYTHON_DOWNLOADS",
    "UV_PYTHON_INSTALL_DIR",
    "UV_PYTHON_INSTALL_MIRROR",
    "UV_PYTHON_PREFERENCE",
    "UV_SYSTEM_CERTS",
    "UV_TOOL_BIN_DIR",
    "UV_TOOL_DIR",
}
# npm and every proxy-aware program read both cases.
_EITHER_CASE = _PROXY | _NPM
NETWORK = _CERTIFICATES | _PIP | _UV | _EITHER_CASE | {name.lower() for name in _EITHER_CASE}
"""Variables that say how the network and the package registries are reached."""
_INHERITED = _USER | _LOCALE | _TEMPORARY | _XDG | _DISPLAY | NETWORK


def child_environment(
    daemon_environment: Mapping[str, str], declared: Mapping[str, str], *, extra_path: str
) -> dict[str, str]:
    """Return the whole environment of a server: some of the daemon's variables, all declared ones.

    `declared` are the variables of the server's definition. `extra_path`, the folder of capd's own
    `uvx`, becomes the last entry of PATH, so that a `uvx` of the user comes first.
    """
    environment = {
        name: value
        for name, value in daemon_environment.items()
        if name in _INHERITED or name.startswith(_LOCALE_PREFIX)
    } | dict(declared)
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    # An empty `extra_path` is not added, because in PATH it would stand for the working directory.
    if extra_path and extra_path not in folders:
        folders.append(extra_path)
    environment["PATH"] = os.pathsep.join(folders)
    return environment


def uvx_folder() -> str:
    """Return the folder of the `uvx` that capd's extra `uv` installs; empty without that extra."""
    if importlib.util.find_spec("uv") is None:
        return ""
    beside_python = os.path.join(sys.prefix, "bin")  # noqa: PTH118
    if os.access(os.path.join(beside_python, "uv"), os.X_OK):  # noqa: PTH118
        # The usual place. uv would ask sysconfig for it, whose tables take 2 MB and 10 ms.
        return beside_python
    from uv import find_uv_bin  # noqa: PLC0415 - as above

    try:
        return os.path.dirname(find_uv_bin())  # noqa: PTH120
    except FileNotFoundError:
        return ""
