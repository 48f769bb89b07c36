"""Checks the programs that start servers: the daemon must find them, in a current version."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from capd_client.doctor.environment import CheckContext, absolute_folders
from capd_client.doctor.findings import Finding
from capd_protos.extras import command as extra_command
from capd_protos.extras import missing

TIMEOUT = 10.0
"""Seconds for a shell's start-up files, or for a program to say its version."""
OLDEST_NODE = 20
"""The oldest major version that is not reported: older ones get no security fixes, and many servers
from npm refuse them."""
_MARK = "capd-path:"
_NAMED = 5


def check_search_path(seen: CheckContext) -> Iterator[Finding]:
    """Report the folders that are on the PATH of the login shell and not on the daemon's."""
    shell = seen.env.get("SHELL") or "/bin/sh"
    output = _output([shell, "-l", "-i", "-c", f'printf "\\n{_MARK}%s\\n" "$PATH"'], seen.env)
    paths = [line.removeprefix(_MARK) for line in output.splitlines() if line.startswith(_MARK)]
    if not paths:
        yield Finding(
            "PATH",
            "warning",
            f"{shell} does not say its PATH",
            f"its start-up files fail, or take longer than {TIMEOUT:g} s",
            f"try `{shell} -l -i -c true`",
        )
        return
    searched = seen.search_path.split(os.pathsep)
    lacking = [
        folder
        for folder in dict.fromkeys(paths[-1].split(os.pathsep))
        if folder and folder not in searched and Path(folder).is_dir()
    ]
    who = "the daemon" if seen.daemon else "this terminal"
    if lacking:
        yield Finding(
            "PATH",
            "warning",
            f"{who} does not look into {len(lacking)} folders of your login shell: "
            + ", ".join(lacking),
            "it was started with another PATH, or before you changed it",
            "open a new terminal, and run `capd restart` in it",
        )
    else:
        yield Finding("PATH", "ok", f"{who} looks into every folder of your login shell")


def check_commands(seen: CheckContext) -> Iterator[Finding]:
    """Report commands of capabilities that are not on the daemon's PATH."""
    users: dict[str, list[str]] = {}
    for capability in seen.capabilities:
        for command in capability.get("commands") or []:
            if "/" in command and not Path(command).is_absolute():
                # A relative path starts at the folder of the server, which differs by project.
                continue
            users.setdefault(command, []).append(f"{capability['tap']}/{capability['name']}")
    path = _with_own_programs(seen.search_path)
    missing = {
        command: names
        for command, names in sorted(users.items())
        if shutil.which(command, path=path) is None
    }
    for command, names in missing.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield Finding(
            "commands",
            "warning",
            f"`{command}` is not found; wanted by {', '.join(names[:_NAMED])}{more}",
            f"it is in no folder of PATH ({seen.search_path})",
            _how_to_get(command),
        )
    if users and not missing:
        yield Finding("commands", "ok", f"all {len(users)} commands of capabilities are found")


def _how_to_get(program: str) -> str:
    if program in {"uv", "uvx"}:
        return f"install uv (docs.astral.sh/uv), or capd's own: {extra_command('uv')}"
    if program in {"node", "npm", "npx"}:
        return "install Node.js (nodejs.org, or your version manager)"
    return (
        f"install {program}, or add its folder to PATH; what a capability installs by itself comes"
        " when it is switched on"
    )


def check_runners(seen: CheckContext) -> Iterator[Finding]:
    """Report the versions of node, npx and uvx, which run servers from npm and PyPI."""
    path = _with_own_programs(seen.search_path)
    for program, registry in (("node", ""), ("npx", "npm"), ("uvx", "PyPI")):
        found = shutil.which(program, path=path)
        if found is None:
            how = f" ({missing('uv')})" if program == "uvx" else ""
            yield Finding("runners", "note", f"no {program}" + _unusable(registry) + how)
            continue
        output = " ".join(_output([found, "--version"], {**seen.env, "PATH": path}).split())
        major = re.match(r"v(\d+)\.", output)
        if not output:
            yield Finding(
                "runners",
                "warning",
                f"{found} does not say its version",
                f"it fails, or takes longer than {TIMEOUT:g} s",
                f"try `{found} --version`, and install it again",
            )
        elif program == "node" and major is not None and int(major[1]) < OLDEST_NODE:
            yield Finding(
                "runners",
                "warning",
                f"node is {output} ({found})",
                f"many servers from npm want {OLDEST_NODE} or later",
                "install a current Node.js (nodejs.org, or your version manager)",
            )
        else:
            name = "" if output.startswith(program) else f"{program} "
            yield Finding("runners", "ok", f"{name}{output} ({found})")


def check_launchers(seen: CheckContext) -> Iterator[Finding]:
    """Report servers that do not run in their project's folder because the project is not trusted.

    A launcher such as npx reads settings from the folder that it runs in.
    """
    for server in seen.status.get("servers") or []:
        if server.get("cwd_reason"):
            yield Finding(
                "launchers",
                "note",
                f"{server.get('name')} runs in {server.get('cwd')}",
                str(server["cwd_reason"]),
                f"where you trust what the folder brings: `capd trust {server.get('project')}`",
            )


def _unusable(registry: str) -> str:
    return f": servers from {registry} cannot be started" if registry else ""


def _with_own_programs(path: str) -> str:
    """Return the search path `path`, followed by the folder in which an extra of capd puts uvx."""
    return os.pathsep.join([path, str(Path(sys.executable).parent)])


def _output(argv: list[str], env: Mapping[str, str]) -> str:
    """Run the program and arguments `argv`; return its output, empty if it fails or hangs.

    It runs in `/`, because version managers, hooks of shells and npm read settings from the folder
    in which they run. The folder of this command may be a fresh clone of somebody's repository.
    """
    path = env.get("PATH", os.defpath)
    try:
        done = subprocess.run(
            argv,
            cwd="/",
            env={**env, "PATH": absolute_folders(path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
            # An interactive shell would take the terminal for itself.
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
