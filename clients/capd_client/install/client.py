"""One client from the view of `capd install`: its files, and what capd puts into them."""

from collections.abc import Collection, Mapping
from pathlib import Path

from capd_client.install import InstallError
from capd_client.install.edits import FileChange, FileEdit
from capd_client.install.files import real_path
from capd_client.install.known_clients import KnownClient, ServersFile, expanded
from capd_client.install.prompt_hooks import hook_edits
from capd_client.install.server_entry import ServerEntry


class Client:
    """A client whose file capd edits. Subclasses add what one client alone needs."""

    def __init__(self, known: KnownClient, env: Mapping[str, str], launcher: Path) -> None:
        """Find the client's file; `launcher` is the program that the file will start.

        Raises:
            AssertionError: capd does not edit a file of this client (`known.is_edited`).
        """
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
        """The path of the file that lists the client's MCP servers."""
        return self.file.path

    @property
    def whole_files(self) -> tuple[Path, ...]:
        """Files of which capd writes the whole content, such as a plugin."""
        return ()

    def first_start(self) -> list[str]:
        """Return a command that makes the client do slow one-time work now, not at its next start.

        Return an empty list if installing capd causes no such work, or if the work is done.
        """
        return []

    def edits(self) -> list[FileEdit]:
        """Return the edits that put capd into the client.

        Raises:
            InstallError: capd would create a file that keeps the client from reading another one
                (`KnownClient.displaces`).
        """
        self._spare_what_it_reads()
        server = FileEdit(self.config, self.server.add, self.server.remove)
        return [server, *self.hooks()]

    def removals(self, noted: Collection[Path]) -> list[FileEdit]:
        """Return the edits that remove capd from the client.

        A client may have several possible files. Those in `noted`, the paths that the ledger has
        for this client, are included.

        Raises:
            InstallError: as for `edits`.
        """
        others = [
            FileEdit(file.path, server.add, server.remove)
            for file in self.known.user_files(self._env)
            if file != self.file and real_path(file.path) in noted
            for server in [ServerEntry(self.known, file, self._launcher)]
        ]
        return [*self.edits(), *others]

    def hooks(self) -> list[FileEdit]:
        """Return the edits that add prompt hooks, through which capd gets the user's messages."""
        return hook_edits(self.name, self._env, self._launcher)

    def leftovers(self) -> list[Path]:
        """Return files that the client itself created because of capd, for removal."""
        return []

    def vendor_command(self, change: FileChange) -> list[str]:
        """Return the client's own command that makes `change`; empty if there is none."""
        del change
        return []

    def run_vendor(self, command: list[str]) -> bytes | None:
        """Run `command`, which changes a file of the client.

        Return the file's new content, or None if that is not as expected.
        """
        del command
        return None

    def _spare_what_it_reads(self) -> None:
        """Check that the client goes on reading its other files when capd creates one.

        Raises:
            InstallError: it would stop reading a file.
        """
        if self.config.exists():
            return
        for each in self.known.displaces:
            other = expanded(each, self._env)
            if other is not None and other.exists():
                raise InstallError(
                    f"{self.title} reads {other}, but no longer if {self.config} exists\n"
                    f"Nothing was changed. Move its content to {self.config.name}, then try again."
                )
