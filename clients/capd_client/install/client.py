"""One client from the view of `capd install`: its files, and what capd puts into them."""

from collections.abc import Collection, Mapping
from pathlib import Path

from capd_client.install import InstallError
from capd_client.install.edits import Change, FileEdit
from capd_client.install.known_clients import KnownClient, ServersFile, expanded
from capd_client.install.prompt_hooks import hook_edits
from capd_client.install.server_entry import ServerEntry


class Client:
    """A client whose file capd edits."""

    def __init__(self, known: KnownClient, env: Mapping[str, str], launcher: Path) -> None:
        file = known.user_file(env)
        if file is None:
            raise AssertionError(known.id)
        self.known = known
        self.name = known.id
        self.title = known.title
        self.file: ServersFile = file
        self.server = ServerEntry(known, file, launcher)
        self._env = env
        self._launcher = launcher

    @property
    def config(self) -> Path:
        """The file with its servers."""
        return self.file.path

    @property
    def whole_files(self) -> tuple[Path, ...]:
        """The files that only capd writes."""
        return ()

    def first_start(self) -> list[str]:
        """Return a command with which the client does now what would delay its first start.

        Empty if capd causes no such work, or if it is done.
        """
        return []

    def edits(self) -> list[FileEdit]:
        """Return the edits that put capd into the client.

        Raises:
            InstallError: capd's file would take the place of one that the client reads.
        """
        self._spare_what_it_reads()
        server = FileEdit(self.config, self.server.add, self.server.remove)
        return [server, *self.hooks()]

    def removals(self, noted: Collection[Path]) -> list[FileEdit]:
        """Return the edits that remove capd, also from an old file in `noted`.

        Raises:
            InstallError: as for `edits`.
        """
        others = [
            FileEdit(file.path, server.add, server.remove)
            for file in self.known.user_files(self._env)
            if file != self.file and file.path.resolve() in noted
            for server in [ServerEntry(self.known, file, self._launcher)]
        ]
        return [*self.edits(), *others]

    def hooks(self) -> list[FileEdit]:
        """Return the edits that add prompt hooks, so that capd sees the user's messages."""
        return hook_edits(self.name, self._env, self._launcher)

    def leftovers(self) -> list[Path]:
        """Return files that the client itself created because of capd, for removal."""
        return []

    def vendor_command(self, change: Change) -> list[str]:
        """Return the client's own command for `change`; empty if there is none."""
        del change
        return []

    def run_vendor(self, command: list[str]) -> bytes | None:
        """Run the command; return the file if the result is right, otherwise None."""
        del command
        return None

    def _spare_what_it_reads(self) -> None:
        if self.config.exists():
            return
        for each in self.known.displaces:
            other = expanded(each, self._env)
            if other is not None and other.exists():
                raise InstallError(
                    f"{self.title} reads {other}, and would not if there were a {self.config}\n"
                    f"Nothing was changed. Move what it says into {self.config.name}, then try"
                    " again."
                )
