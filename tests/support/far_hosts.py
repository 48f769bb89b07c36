"""Another host as far as ssh sees, and a bridge to it, for tests.

Each connection has an sshd of its own, on the pipes of ssh (`sshd -i`), so that no port is opened
and nothing of this machine's configuration is used. As root it logs in as the user `bob`, if there
is one that is not locked; else as whoever runs the tests, with another home.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from capd_client.mcp_host import McpHost
from support.bridges import BridgeCommand
from whole_daemon import Home, wait_for

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

_CHUNK_BYTES = 4 << 20

NEEDS_SSH = [
    pytest.mark.skipif(SSHD is None, reason="there is no sshd on this machine"),
    pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh on this machine"),
]


def far_user() -> pwd.struct_passwd:
    with contextlib.suppress(KeyError, OSError):
        # Without PAM, sshd lets nobody in whose entry is locked, whatever the key.
        if os.getuid() == 0 and "\nbob:!" not in Path("/etc/shadow").read_text():
            return pwd.getpwnam("bob")
    return pwd.getpwuid(os.getuid())


class FarNetwork:
    """A network namespace that one cable connects with this machine; it needs root."""

    def __init__(self, port: int = 2222) -> None:
        """`port` is where an sshd there will listen."""
        self.port = port
        holding = "ip link set lo up && echo up && exec sleep infinity"
        self._process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", holding], stdout=subprocess.PIPE
        )
        self._started = [self._process]
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"up\n"
        pid = self._process.pid
        self.inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
        """The words before a command that runs in the namespace."""
        self._cable = f"cb{pid}"
        # 198.18.0.0/15 is for tests of networks (RFC 2544), so no real host is there.
        subnet = f"198.18.{pid % 256}"
        self.address = f"{subnet}.2"
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "far0", "netns", str(pid))
        _ip("address", "add", f"{subnet}.1/30", "dev", self._cable)
        _ip("address", "add", f"{self.address}/30", "dev", "far0", inside=self.inside)
        _ip("link", "set", "far0", "up", inside=self.inside)
        self.plug_in()

    def start(self, words: Sequence[str]) -> None:
        """Start a command that stays until the network is closed."""
        self._started.append(subprocess.Popen([*self.inside, *words], stderr=subprocess.DEVNULL))

    def is_listening(self) -> bool:
        """Tell whether something accepts connections at the port."""
        with contextlib.suppress(OSError):
            socket.create_connection((self.address, self.port), 1).close()
            return True
        return False

    def has(self, pid: int) -> bool:
        """Tell whether a process is in the namespace."""
        with contextlib.suppress(OSError):
            own = Path("/proc", str(self._process.pid), "ns/net").readlink()
            return pid != self._process.pid and Path("/proc", str(pid), "ns/net").readlink() == own
        return False

    def cut(self) -> None:
        """Disconnect the cable: packets are lost, and no connection is closed."""
        _ip("link", "set", self._cable, "down")

    def plug_in(self) -> None:
        """Plug the cable in."""
        _ip("link", "set", self._cable, "up")

    def close(self) -> None:
        """End every process that is in it, and with the last one the cable."""
        for pid in filter(self.has, pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for each in self._started:
            each.kill()
            each.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _ip(*words: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, "ip", *words], check=True)


class FarHost:
    """Another host from ssh's point of view: a home, and an sshd for each connection."""

    def __init__(self, folder: Path, network: FarNetwork | None = None) -> None:
        """With `network` its sshd listens there; else no port is open."""
        self.user = far_user()
        self.name = "far"
        """The name of the bridge to it."""
        self.home = folder / "home"
        self.home.mkdir()
        self.project = folder / "project"
        """A folder with files, which no bridge removes."""
        self.project.mkdir()
        folder.chmod(0o755)
        for each in (self.home, self.project):
            os.chown(each, self.user.pw_uid, self.user.pw_gid)
        self.config = folder / "ssh_config"
        key, host_key = folder / "key", folder / "host_key"
        for each in (key, host_key):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(each)]
            subprocess.run(command, check=True)
        authorized = folder / "authorized"
        authorized.write_text(key.with_suffix(".pub").read_text())
        sshd_config = folder / "sshd_config"
        sshd_config.write_text(
            f"HostKey {host_key}\nAuthorizedKeysFile {authorized}\nStrictModes no\nUsePAM no\n"
            f"PidFile none\nSetEnv HOME={self.home}\nPrintMotd no\nPrintLastLog no\n"
        )
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.config.write_text(
            f"Host far\n User {self.user.pw_name}\n IdentityFile {key}\n IdentitiesOnly yes\n"
            f" StrictHostKeyChecking no\n"
            f" UserKnownHostsFile /dev/null\n LogLevel ERROR\n BatchMode yes\n"
        )
        with self.config.open("a") as config:
            if network is None:
                config.write(f" ProxyCommand {SSHD} -i -f {sshd_config}\n")
            else:
                config.write(f" HostName {network.address}\n Port {network.port}\n")
                words = [str(SSHD), "-D", "-f", str(sshd_config), "-p", str(network.port)]
                network.start(words)
                wait_for(network.is_listening)

    def obey(self, script: str) -> None:
        """Play a hostile host that runs this script in place of every command."""
        hostile = self.home.parent / "hostile"
        hostile.write_text(f"#!/bin/sh\n{script}\n")
        hostile.chmod(0o755)
        with (self.home.parent / "sshd_config").open("a") as config:
            config.write(f"ForceCommand {hostile}\n")

    @property
    def folder(self) -> Path:
        return self.home / ".local/share/capd-bridge" / self.name

    def left(self) -> list[str]:
        """Return every file that is in the home, with the processes that know the bridge."""
        files = [str(each.relative_to(self.home)) for each in self.home.rglob("*")]
        ours = {".local", ".local/share"}
        return [*(each for each in files if each not in ours), *map(str, self.processes())]

    def processes(self) -> list[int]:
        return [pid for pid in pids() if str(self.folder).encode() in cmdline(pid)]

    def editor(self, session: str, folder: Path | None = None) -> McpHost:
        """Start an editor on the far side, in its home, with the shim that the bridge installed."""
        env = {"HOME": str(self.home), "PATH": os.defpath, "CAPD_SESSION": session}
        command = [shutil.which("python3") or sys.executable, str(self.folder / "capd.pyz")]
        if self.user.pw_uid != os.getuid():
            command = ["setpriv", f"--reuid={self.user.pw_uid}", "--clear-groups", *command]
        return McpHost(command, env=env, cwd=str(folder or self.home))


class SshBridge(BridgeCommand):
    """A running `capd bridge ssh`."""

    def __init__(self, home: Home, host: FarHost, *more: str) -> None:
        self.home, self.host = home, host
        super().__init__(home, "ssh", "far", "-F", str(host.config), *more)

    def tunnel(self) -> int:
        """Return the process of ssh that forwards the socket."""
        found = [
            pid for pid in pids() if parent(pid) == self.process.pid and b"/socket:" in cmdline(pid)
        ]
        return found[0] if found else 0


def memory_has(pid: int, wanted: bytes) -> bool:
    """Tell whether a process has a text in its memory or its environment; False if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        folder = Path("/proc", str(pid))
        if wanted in (folder / "environ").read_bytes():
            return True
        with (folder / "mem").open("rb", 0) as memory:
            return any(
                _range_has(memory, start, end, wanted)
                for start, end in _used_ranges((folder / "smaps").read_text())
            )
    return False


def _used_ranges(smaps: str) -> Iterator[tuple[int, int]]:
    """Yield the readable ranges of a process that hold anything; it may reserve terabytes."""
    start, end, is_readable = 0, 0, False
    for line in smaps.splitlines():
        head, *values = line.split()
        if not head.endswith(":"):
            start, end = (int(each, 16) for each in head.split("-"))
            is_readable = values[0].startswith("r") and "[v" not in line
        elif head in {"Rss:", "Swap:"} and is_readable and values[0] != "0":
            yield start, end
            is_readable = False


def _range_has(memory: IO[bytes], start: int, end: int, wanted: bytes) -> bool:
    before = b""
    for at in range(start, end, _CHUNK_BYTES):
        try:
            memory.seek(at)
            data = before + memory.read(min(_CHUNK_BYTES, end - at))
        except OSError:
            # A part of a mapping that has no memory, such as the end of a file.
            before = b""
            continue
        if wanted in data:
            return True
        before = data[-len(wanted) :]
    return False


def pids() -> list[int]:
    return [int(each) for each in os.listdir("/proc") if each.isdigit()]  # noqa: PTH208 - /proc


def cmdline(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes()
    return b""


def parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        stat = Path("/proc", str(pid), "stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])
    return 0


def below(pid: int) -> list[int]:
    """Return every process below one, parents first."""
    children = [each for each in pids() if parent(each) == pid]
    return [found for child in children for found in (child, *below(child))]
