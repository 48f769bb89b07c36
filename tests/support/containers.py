"""An image for tests: this Python and a shell of this machine, and a server to run in it.

No registry of images is asked for anything: the image is made of files that are here.
"""

import functools
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

SERVER = Path(__file__).with_name("contained_server.py")
PYTHON = "/python/bin/python3"
_LEFT_OUT = {"test", "tests", "site-packages", "__pycache__", "idlelib", "tkinter", "ensurepip"}
_TIMEOUT = 240


def run(
    *words: str, stdin: bytes = b"", env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command of the engine."""
    return subprocess.run(
        words, input=stdin, capture_output=True, timeout=_TIMEOUT, check=False, env=env
    )


@functools.cache
def image() -> tuple[str, str]:
    """Return the image's name with its digest, or why there is none."""
    podman = shutil.which("podman")
    if podman is None or sys.platform != "linux":
        return "", "there is no podman here"
    name = "localhost/capd-test:1"
    if run(podman, "image", "exists", name).returncode != 0:
        made = run(podman, "import", "-", name, stdin=_tree())
        if made.returncode != 0:
            return "", f"podman makes no image: {made.stderr.decode(errors='replace')[-300:]}"
    found = run(podman, "image", "inspect", "--format={{.Digest}}", name)
    pinned = f"localhost/capd-test@{found.stdout.decode().strip()}"
    bounds = ("--ulimit=nofile=512:512", "--ulimit=nproc=512:512", "--network=none")
    tried = run(podman, "run", "--rm", *bounds, pinned, PYTHON, "-c", "print(1)")
    if tried.stdout != b"1\n":
        return "", f"podman runs nothing here: {tried.stderr.decode(errors='replace')[-300:]}"
    return pinned, ""


def _tree() -> bytes:
    """Return a root file system as a tar file."""
    base = Path(sys.base_prefix)
    version = sysconfig.get_python_version()
    program = Path(os.path.realpath(base / "bin" / f"python{version}"))
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": str(base)}))
    shell = Path(os.path.realpath("/bin/sh"))
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        tar.add(program, arcname=PYTHON[1:])
        tar.add(shell, arcname="bin/sh")
        tar.add(SERVER, arcname="server.py")
        tar.add(library, arcname=f"python/lib/python{version}", filter=_kept)
        modules = sorted((library / "lib-dynload").glob("*.so"))
        for each in _libraries([program, shell, *modules]):
            tar.add(os.path.realpath(each), arcname=each[1:])
        for folder in ("tmp", "proc", "dev", "sys", "etc", "run"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    return held.getvalue()


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = entry.name.split("/")
    is_build = any(each.startswith("config-") for each in parts)
    return None if is_build or _LEFT_OUT & set(parts) else entry


def _libraries(programs: list[Path]) -> list[str]:
    found = run("ldd", *map(str, programs)).stdout.decode()
    return sorted(set(re.findall(r"(/\S+\.so\S*) \(0x", found)))
