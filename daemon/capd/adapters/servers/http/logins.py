"""The daemon's logins at remote servers; only the daemon refreshes them.

    none ──log_in──> fresh ──expires, or is refused (401)──> refreshed, once for all connections
      ^                                      │ refused for good
      └──────────── a person logs in again ──┘  (the server is not started until then)

A refresh token is often valid for only one use. So a refresh that has begun is finished and saved,
even if nobody waits for it any longer.
"""

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import trio

from capd.adapters.servers.http.challenges import Challenge, scopes_of
from capd.adapters.servers.http.login_dialogue import LoginDialogue
from capd.adapters.servers.http.login_record import (
    LoginFailedError,
    LoginNeededError,
    LoginRecord,
    NoRevocationError,
)
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.core.protocol.outcomes import NotSentError
from capd_protos.codec import JsonCodec, MalformedError

if TYPE_CHECKING:
    import httpx2

    from capd.adapters.servers.http.guarded_client import Answer, Dispatch, ServerRequest
    from capd.adapters.servers.http.token_store import TokenStore

    Answered = Callable[
        [httpx2.AsyncClient, ServerRequest, Dispatch], AbstractAsyncContextManager[Answer]
    ]

log = structlog.get_logger()

REFRESH_TIMEOUT = 60.0
LOGIN_TIMEOUT = 600.0
REVOKE_TIMEOUT = 8.0
"""Seconds for which a logout waits for the authorization server."""
LOOK_AGAIN = 60.0
"""Seconds after which a login that could not be read is read again. A keyring that is locked may
show its user a window each time."""
_UNAUTHORIZED, _FORBIDDEN = 401, 403


_RECORD: JsonCodec[LoginRecord] = JsonCodec(LoginRecord)


class Logins:
    """Every login of the daemon, one per server and account."""

    def __init__(self, folder: Path, store: "TokenStore | None" = None) -> None:
        """Create the table of logins.

        They are saved in `store`; if it is None, in the keyring, or else in `folder`.
        """
        self._folder = folder
        self._store = store
        self._store_lock = trio.Lock()
        self._kept: dict[str, _SharedLogin] = {}

    def of(self, spec: RemoteSpec) -> "Login":
        """Return the login at the server of `spec`, which all connections to it share."""
        # A token is valid only for the OAuth client that it was issued to.
        client = f"\n{spec.client.id}" if spec.client is not None else ""
        account = f"\naccount {spec.account.casefold()}" if spec.account else ""
        key = hashlib.sha256(f"{spec.url}{client}{account}".encode()).hexdigest()[:32]
        return Login(spec, self._kept.setdefault(key, _SharedLogin(key)), self.store)

    async def account(self, spec: RemoteSpec, namespace: str) -> str:
        """Return the account with which a session logs in at the server of `spec`.

        The account is `namespace`, the namespace of the session's secrets, if a person has logged
        in with that `--account`, or if capd cannot read that login at the moment: requests then
        fail with the reason. Otherwise it is empty, for the default login. The values of secrets
        are chosen in the same way.
        """
        if not namespace or not self.takes_login(spec):
            return ""
        account = namespace.casefold()
        return account if await self.of(replace(spec, account=account)).may_be_kept() else ""

    @staticmethod
    def takes_login(spec: RemoteSpec) -> bool:
        """Tell whether requests to the server of `spec` are sent with the token of a login."""
        has_own = any(name.lower() == "authorization" for name in spec.headers)
        return not has_own and spec.auth == "oauth"

    async def store(self) -> "TokenStore":
        """Return the store of logins."""
        async with self._store_lock:
            if self._store is None:
                self._store = await trio.to_thread.run_sync(_best_store, self._folder)
            return self._store


@dataclass(slots=True, eq=False)
class _SharedLogin:
    """The state of one login, shared by all connections that use it."""

    key: str
    lock: trio.Lock = field(default_factory=trio.Lock)
    record: LoginRecord | None = field(default=None, repr=False)
    is_loaded: bool = False
    trouble: str = ""
    """Why the login could not be read, if a later attempt may succeed; empty otherwise."""
    look_again_at: float = 0.0
    """When that attempt is made, on trio's clock."""
    lacking: Challenge | None = None
    """What the server has demanded since a person last logged in."""


@dataclass(frozen=True, slots=True)
class LoggedOut:
    """The outcome of a logout: what capd has deleted, and what the server has revoked."""

    was_kept: bool = True
    """Whether there was a saved login."""
    is_revoked: bool = False
    """Whether the server has revoked the login's tokens."""
    failure: str = ""
    """Why revoking the tokens failed; empty if it succeeded, or if no revocation is offered."""


class Login:
    """The login at one server: adds its token to requests, and refreshes it when needed."""

    def __init__(
        self, spec: RemoteSpec, kept: _SharedLogin, store: "Callable[[], Awaitable[TokenStore]]"
    ) -> None:
        self._spec = spec
        self._kept = kept
        self._store = store

    def advice(self, status: int) -> str:
        """Return what a person should do about the HTTP status code `status`.

        The text continues a sentence that begins with the server's name.
        """
        if any(name.lower() == "authorization" for name in self._spec.headers):
            return (
                f"refused the Authorization header that its definition gives it"
                f" (HTTP status {status}): correct that header"
            )
        if self._spec.auth == "none":
            return f"wants credentials (HTTP status {status}): put them into its headers"
        account = f" --account {self._spec.account}" if self._spec.account else ""
        return f"wants a login (HTTP status {status}): run: capd login {self._spec.name}{account}"

    async def keep(self, record: LoginRecord) -> None:
        """Save `record` and use it from now on, because a person has just logged in.

        Raises:
            LoginFailedError: it cannot be saved, and is not used.
        """
        async with self._kept.lock:
            try:
                await self._save(record)
            except OSError as error:
                why = f"the login cannot be saved ({error.strerror})"
                raise LoginFailedError(f"{self._spec.name}: {why}") from None
            self._kept.lacking = None
            self._kept.record, self._kept.is_loaded, self._kept.trouble = record, True, ""

    async def issuer(self) -> str:
        """Return the authorization server of the login that is kept; empty if there is none."""
        async with self._kept.lock:
            if not self._kept.is_loaded:
                await self._load()
            record = self._kept.record
            return str(record.server_metadata.get("issuer") or "") if record is not None else ""

    async def lacking(self) -> Challenge | None:
        """Return what the next login has to request; None if the server has demanded nothing.

        If the server has demanded scopes, the result also has those that were granted before.
        Otherwise the next login requests the scopes that the server names in its answer to the
        first request.
        """
        async with self._kept.lock:
            if self._kept.lacking is None or not self._kept.lacking.scopes:
                return self._kept.lacking
            if not self._kept.is_loaded:
                await self._load()
            record = self._kept.record
            granted = str(record.tokens.get("scope") or "") if record is not None else ""
            return Challenge(scopes_of(granted)).with_more(self._kept.lacking)

    def _note(self, answer: "Answer") -> None:
        """Remember the demands on a login that the server makes in `answer`."""
        said = answer.headers.get("www-authenticate", "")
        is_more = answer.status == _FORBIDDEN and "insufficient_scope" in said
        if answer.status == _UNAUTHORIZED or is_more:
            challenge = Challenge.of(said)
            kept = self._kept.lacking
            self._kept.lacking = challenge if kept is None else kept.with_more(challenge)

    async def is_kept(self) -> bool:
        """Tell whether a login is saved."""
        async with self._kept.lock:
            if not self._kept.is_loaded:
                await self._load()
            return self._kept.record is not None

    async def may_be_kept(self) -> bool:
        """Tell whether a login is saved, or cannot be read at the moment."""
        return await self.is_kept() or bool(self._kept.trouble)

    async def forget(self) -> "LoggedOut":
        """Log out: delete the saved login, then ask the server to revoke its tokens.

        The login stays deleted, whatever the server answers.
        """
        async with self._kept.lock:
            if not self._kept.is_loaded:
                await self._load()
            record = self._kept.record
            store = await self._store()
            # A record that could not be read goes as well.
            await trio.to_thread.run_sync(store.delete, self._kept.key)
            self._kept.record, self._kept.is_loaded, self._kept.trouble = None, True, ""
        return LoggedOut(was_kept=False) if record is None else await self._revoked(record)

    async def _revoked(self, record: LoginRecord) -> "LoggedOut":
        try:
            with trio.fail_after(REVOKE_TIMEOUT):
                authorization = await trio.to_thread.run_sync(_authorization)
                failure = str(await authorization.revoke(self._spec, record))
        except NoRevocationError:
            return LoggedOut()
        except LoginFailedError as error:
            failure = str(error)
        except trio.TooSlowError:
            failure = f"it did not answer within {REVOKE_TIMEOUT:g} s"
        log.info("login_revoked", server=self._spec.name, failure=failure)
        return LoggedOut(is_revoked=not failure, failure=failure)

    @asynccontextmanager
    async def answered(
        self,
        client: "httpx2.AsyncClient",
        ask: "ServerRequest",
        dispatch: "Dispatch",
        answered: "Answered",
    ) -> "AsyncIterator[Answer]":
        """Send the request `ask` with this login's token, and yield the answer.

        The function `answered` sends it with `client`. `dispatch` records when its first byte is
        written.

        Raises:
            LoginNeededError: the server accepts no token of this login.
            CallFailedError: there is no answer.
        """
        token = await self._access() if Logins.takes_login(self._spec) else ""
        for is_last in (False, True):
            async with answered(client, _with(ask, token), dispatch) as answer:
                self._note(answer)
                if answer.status != _UNAUTHORIZED:
                    yield answer
                    return
            if not token or is_last:
                break
            token = await self._access(refused=token)
        if self._kept.trouble:
            raise NotSentError(f"cannot be asked: its login is not readable ({self._kept.trouble})")
        raise LoginNeededError(self.advice(_UNAUTHORIZED))

    async def _access(self, refused: str = "") -> str:
        """Return a token, refreshed if necessary; empty if there is none.

        The token is not `refused`, which the server did not accept.
        """
        async with self._kept.lock:
            if not self._kept.is_loaded:
                await self._load()
            record = self._kept.record
            if record is None:
                return ""
            is_over = record.expires_at is not None and time.time() >= record.expires_at
            if record.access_token != refused and not is_over:
                return record.access_token
            if not record.tokens.get("refresh_token"):
                raise LoginNeededError(self.advice(_UNAUTHORIZED))
            fresh: LoginRecord | None = None
            with trio.CancelScope(shield=True), trio.move_on_after(REFRESH_TIMEOUT):
                fresh = await self._refresh(record)
                self._kept.record = fresh
                try:
                    await self._save(fresh)
                except OSError as error:
                    # This daemon uses the fresh login anyway, and saves the next one.
                    log.warning("login_not_saved", server=self._spec.name, reason=error.strerror)
            if fresh is None:
                raise NotSentError("was not asked: its authorization server does not answer")
        await trio.lowlevel.checkpoint_if_cancelled()
        return fresh.access_token

    async def _refresh(self, record: LoginRecord) -> LoginRecord:
        try:
            authorization = await trio.to_thread.run_sync(_authorization)
        except LoginFailedError as error:
            raise LoginNeededError(str(error)) from None
        refreshed: LoginRecord = await authorization.refresh(self._spec, record, self.advice)
        return refreshed

    async def _load(self) -> None:
        if self._kept.trouble and trio.current_time() < self._kept.look_again_at:
            return
        store = await self._store()
        self._kept.record = None
        self._kept.trouble = ""
        try:
            text = await trio.to_thread.run_sync(store.load, self._kept.key)
            self._kept.record = None if text is None else _RECORD.decode(text)
        except OSError as error:
            # For example a keyring that its user has not unlocked yet.
            self._kept.trouble = error.strerror or "it cannot be read"
            self._kept.look_again_at = trio.current_time() + LOOK_AGAIN
            log.warning("login_unreadable", server=self._spec.name, reason=self._kept.trouble)
            return
        except MalformedError:
            # The next login replaces the record. The decoder's own message may quote a token.
            log.warning("login_unreadable", server=self._spec.name, reason="it is damaged")
        self._kept.is_loaded = True

    async def _save(self, record: LoginRecord) -> None:
        store = await self._store()
        await trio.to_thread.run_sync(store.save, self._kept.key, _RECORD.encode(record).decode())


async def log_in(
    spec: RemoteSpec,
    logins: Logins,
    show: Callable[[str], Awaitable[None]],
    *,
    dialogue: LoginDialogue | None = None,
    timeout: float = LOGIN_TIMEOUT,
) -> None:
    """Log a person in at the server of `spec`, and save the login in `logins`.

    `show` gets the address that the person has to open. `dialogue` has the kind of login, and
    receives what the person pastes. `timeout` is in seconds. Call this only because a person asked
    for it.

    Raises:
        LoginFailedError: the login failed.
    """
    authorization = await trio.to_thread.run_sync(_authorization)
    login = logins.of(spec)
    try:
        with trio.fail_after(timeout):
            record = await authorization.authorize(
                spec,
                show,
                await login.lacking(),
                dialogue or LoginDialogue(),
                await login.issuer(),
            )
    except trio.TooSlowError:
        raise LoginFailedError(f"{spec.name}: nobody logged in within {timeout:g} s") from None
    await login.keep(record)


def _with(ask: "ServerRequest", token: str) -> "ServerRequest":
    if not token:
        return ask
    return replace(ask, headers={**ask.headers, "authorization": f"Bearer {token}"})


def _authorization() -> Any:
    """Return the module that logs in. Importing it takes a second, so run this in a thread."""
    from capd.adapters.servers.http import authorization  # noqa: PLC0415 - see above

    return authorization


def _best_store(folder: Path) -> "TokenStore":
    """Return the best store of logins: the keyring if it works, otherwise files in `folder`.

    It imports and asks the keyring, so run it in a thread.
    """
    from capd.adapters.servers.http.token_store import best_store  # noqa: PLC0415 - see above

    return best_store(folder)
