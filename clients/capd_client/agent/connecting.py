"""`connect`: opens a session, for blocking programs and for asynchronous ones."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from capd_client.agent.address import Address, address
from capd_client.agent.blocking import Session
from capd_client.agent.link import AgentFacts
from capd_client.shim.replay import encodable

if TYPE_CHECKING:
    from capd_client.agent.asynchronous import AsyncSession

PATIENCE = 30.0


class Connecting:
    """The result of `connect`: open the session with `with`, `async with` or `open`."""

    def __init__(self, facts: AgentFacts, where: Address, patience: float) -> None:
        self._facts = facts
        self._where = where
        self._patience = patience
        self._session: Session | None = None
        self._async_session: AsyncSession | None = None

    def open(self) -> Session:
        """Open a session. The caller must close it.

        Raises:
            CapdError: no daemon answers, or the daemon refused.
        """
        return Session(self._facts, self._where, self._patience)

    def __enter__(self) -> Session:
        """Open a session for a blocking program."""
        self._session = self.open()
        return self._session

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            self._session.close()

    async def __aenter__(self) -> "AsyncSession":
        """Open a session for an asynchronous program."""
        # Imported here: importing anyio takes as long as importing all of capd's commands, and only
        # an asynchronous program needs it, which has loaded it already.
        from capd_client.agent.asynchronous import AsyncSession  # noqa: PLC0415

        self._async_session = AsyncSession(self._facts, self._where, self._patience)
        return await self._async_session.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._async_session is not None:
            await self._async_session.__aexit__(kind, error, traceback)


def connect(
    *,
    client: str = "",
    version: str = "",
    project: str | os.PathLike[str] = "",
    session: str = "",
    parent: str = "",
    inherit: bool = True,
    env: Mapping[str, str] | None = None,
    socket: str = "",
    start: bool = True,
    patience: float = PATIENCE,
) -> Connecting:
    """Return a session to be opened with `with` or `async with`.

    `client` names the agent; by default it is the program's name. `version` is the agent's version.
    `project` is the folder that the agent works in; by default the working directory.

    `session` is a key of your own, 1 to 128 characters of `A-Za-z0-9._:-`. An agent that uses it
    again within a day finds the same tools switched on. `parent` is the key of the session that
    started this one, and `inherit` says whether this one starts with the same tools switched on.

    `env` is the environment whose variables servers may ask for; by default the process's. `socket`
    is the path of a daemon's socket; by default that of the user's daemon. If no daemon answers,
    one is started, unless `start` is false, `socket` is given, or `env` has `CAPD_NO_START`.
    `patience` is the number of seconds to wait for a daemon.
    """
    values = os.environ if env is None else env
    folder = os.path.realpath(project or Path.cwd())
    facts = AgentFacts(
        client=encodable(client or Path(sys.argv[0] or "agent").stem or "agent"),
        version=encodable(version),
        pid=os.getpid(),
        cwd=folder,
        project=folder,
        session=session,
        parent=parent,
        inherit=inherit,
        env=values,
    )
    return Connecting(facts, address(socket, values, may_start=start), patience)
