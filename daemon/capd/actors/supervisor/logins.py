"""Logs a person in at a server that is reached by URL.

    opened: the person gets the address ──logs in, or pastes the redirect's address──> done
       └───────────── does neither within ten minutes ──> failed

Only a person's command starts a login (docs/logins.md). A server cannot request one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import structlog
import trio

from capd.adapters.servers.http.login_dialogue import LoginDialogue
from capd.adapters.servers.http.logins import Logins, log_in
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.core.errors import CapdError, described
from capd.core.protocol.outcomes import internal_error
from capd.core.servers.login_answers import PasteError
from capd_protos import supervisor as messages

ADDRESS_TIMEOUT = 30.0
MOST_LOGINS = 16

log = structlog.get_logger(actor="supervisor")


@dataclass(slots=True, eq=False)
class _Login:
    opened: trio.Event = field(default_factory=trio.Event)
    done: trio.Event = field(default_factory=trio.Event)
    address: str = ""
    problem: str = ""
    dialogue: LoginDialogue = field(default_factory=LoginDialogue)


class LoginRequests:
    """Starts logins that a person asks for, and finds logins in progress by their tickets."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins
        self._tickets = count(1)
        self._under_way: dict[int, _Login] = {}

    async def open(
        self,
        spec: RemoteSpec,
        way: messages.LoginWay,
        nursery: trio.Nursery,
        on_success: Callable[[], None],
    ) -> messages.LoginOpened | messages.LoginFailed:
        """Start a login; return its ticket and the address that the person has to open.

        `way` is how the person logs in: `browser` or `device`. `on_success` is called when the
        person has logged in.
        """
        if len(self._under_way) >= MOST_LOGINS:
            self._under_way.pop(next(iter(self._under_way)))
        ticket = next(self._tickets)
        login = self._under_way[ticket] = _Login(dialogue=LoginDialogue(way))
        nursery.start_soon(self._run, spec, login, on_success)
        with trio.move_on_after(ADDRESS_TIMEOUT):
            await login.opened.wait()
        if login.problem or not login.address:
            return messages.LoginFailed(login.problem or f"{spec.name} gives no address in time")
        return messages.LoginOpened(ticket, login.address, login.dialogue.user_code)

    def paste(self, ticket: int, address: str) -> messages.LoginPasted | messages.LoginFailed:
        """Finish a login with the address that the person's browser was redirected to.

        A wrong address does not end the login.
        """
        login = self._under_way.get(ticket)
        if login is None or login.done.is_set():
            return messages.LoginFailed("there is no such login under way")
        try:
            login.dialogue.paste(address)
        except PasteError as error:
            return messages.LoginFailed(str(error))
        return messages.LoginPasted()

    async def wait(self, ticket: int) -> messages.LoggedIn | messages.LoginFailed:
        """Wait until a login has ended; return its result."""
        login = self._under_way.get(ticket)
        if login is None:
            return messages.LoginFailed("there is no such login under way")
        await login.done.wait()
        self._under_way.pop(ticket, None)
        return messages.LoginFailed(login.problem) if login.problem else messages.LoggedIn()

    async def _run(self, spec: RemoteSpec, login: _Login, on_success: Callable[[], None]) -> None:
        async def show(address: str) -> None:
            await trio.lowlevel.checkpoint()
            login.address = address
            login.opened.set()

        try:
            await log_in(spec, self._logins, show, dialogue=login.dialogue)
            on_success()
        except CapdError as error:
            login.problem = str(error)
            log.info("login_failed", server=spec.name, reason=str(error))
        except Exception as error:  # noqa: BLE001 - the boundary of one login
            login.problem = f"{spec.name}: {internal_error(error)}"
            log.error("task_failed", task=f"login at {spec.name}", **described(error))
        finally:
            login.opened.set()
            login.done.set()
