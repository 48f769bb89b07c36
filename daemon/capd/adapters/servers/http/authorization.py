"""Gets and refreshes tokens with the SDK's OAuth client; every address is checked.

The SDK knows the protocol: discovery, registration, PKCE, state, `iss`, `resource`. It determines
the next request. This module checks that request's address, sends it, and returns the response. The
user's own headers never go to an authorization server. No error quotes a text that such a server
wrote, because the text may contain a secret.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import calculate_token_expiry

from capd.adapters.servers.http.address_policy import AddressPolicy, AddressRefusedError
from capd.adapters.servers.http.challenges import Challenge
from capd.adapters.servers.http.device_login import log_in_by_device
from capd.adapters.servers.http.guarded_client import (
    MOST_REDIRECTS,
    Answer,
    check_headers,
    new_client,
    reason_of,
)
from capd.adapters.servers.http.login_dialogue import LoginDialogue
from capd.adapters.servers.http.login_record import (
    LoginFailedError,
    LoginNeededError,
    LoginRecord,
    NoRevocationError,
)
from capd.adapters.servers.http.redirect_listener import RedirectListener, listening
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.core.protocol.generations import NEWEST_HANDSHAKE
from capd.core.protocol.outcomes import CallFailedError, NotSentError, OutcomeUnknownError
from capd.core.servers.login_answers import DEVICE_GRANT, DeviceError

ANSWER_CAP_BYTES = 1 << 20
ANSWER_TIMEOUT = 30.0
# A token's `expires_in` may be a number that no float holds.
_LIBRARY_ERRORS = (OAuthFlowError, ValueError, OverflowError)
_OK, _BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN, _TOO_MANY, _FAULT = 200, 400, 401, 403, 429, 500

Show = Callable[[str], Awaitable[None]]


class _MemoryStorage:
    """The storage that the SDK requires, in memory. Other code saves the login itself."""

    def __init__(
        self, tokens: OAuthToken | None = None, client: OAuthClientInformationFull | None = None
    ) -> None:
        self._tokens = tokens
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class _Sender:
    """Sends the requests of the SDK's login flow."""

    def __init__(self, spec: RemoteSpec) -> None:
        self.policy = AddressPolicy(spec.url)
        self._client: httpx2.AsyncClient | None = None
        self._redirects = 0

    async def __aenter__(self) -> Self:
        """Open the HTTP client, which has none of the user's headers."""
        self._client = await trio.to_thread.run_sync(new_client, {})
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the HTTP client."""
        assert self._client is not None
        await self._client.aclose()

    async def send(self, request: httpx2.Request, *, is_discovered: bool = True) -> httpx2.Response:
        """Send `request`; return the response, read in full.

        `is_discovered` says that a server has named the address, which is then checked.

        Raises:
            AddressRefusedError: capd must not connect to its address.
            CallFailedError: there is no usable response.
        """
        addresses = [""]
        if is_discovered:
            found = await self.policy.check(str(request.url), "an authorization server")
            addresses = found or [""]
        failure = NotSentError("cannot be reached")
        for address in addresses:
            try:
                with trio.fail_after(ANSWER_TIMEOUT):
                    return await self._sent_to(request, address)
            except httpx2.ConnectError as error:
                failure = NotSentError(f"cannot be reached ({reason_of(error)})")
            except (httpx2.HTTPError, httpx2.StreamError) as error:
                raise OutcomeUnknownError(f"did not answer ({reason_of(error)})") from None
            except trio.TooSlowError:
                raise OutcomeUnknownError("did not answer in time") from None
        raise failure

    async def _sent_to(self, request: httpx2.Request, address: str) -> httpx2.Response:
        assert self._client is not None
        sent = request
        if address:
            # Connect to the address that was checked; the certificate must be that of the name.
            sent = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                content=request.content,
                extensions={**request.extensions, "sni_hostname": request.url.host},
            )
        response = await self._client.send(sent, stream=True, auth=None, follow_redirects=False)
        async with aclosing(Answer(response)) as body:
            check_headers(response)
            is_stream = body.kind == "text/event-stream"
            content = b"" if is_stream else await body.read(ANSWER_CAP_BYTES)
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in {"content-encoding", "transfer-encoding", "content-length"}
        ]
        answer = httpx2.Response(
            response.status_code, headers=headers, content=content, request=request
        )
        self._redirects = self._redirects + 1 if answer.has_redirect_location else 0
        if self._redirects > MOST_REDIRECTS:
            raise OutcomeUnknownError(f"redirects more than {MOST_REDIRECTS} times")
        if answer.has_redirect_location:
            answer.next_request = _following(answer)
        return answer


def _following(answer: httpx2.Response) -> httpx2.Request | None:
    """Return the request that a redirect asks for; None if the redirect names no valid address.

    The SDK decides whether it may be sent.
    """
    try:
        target = answer.request.url.join(answer.headers["location"])
    except httpx2.InvalidURL:
        return None
    method = answer.request.method
    is_kept = method == "GET" or answer.status_code in {307, 308}
    headers = {k: v for k, v in answer.request.headers.items() if k.lower() != "host"}
    content = answer.request.content if is_kept else b""
    return httpx2.Request(method if is_kept else "GET", target, headers=headers, content=content)


async def authorize(
    spec: RemoteSpec,
    show: Show,
    lacking: Challenge | None,
    dialogue: LoginDialogue,
    last_issuer: str = "",
) -> LoginRecord:
    """Log a person in at `spec`'s server, and return the login.

    `show` gets the address that the person has to open. `lacking` are the demands in the server's
    answer to an earlier request. `dialogue` has the kind of login, and receives the text that the
    person pastes. `last_issuer` is the authorization server of the login that this one replaces;
    empty if there is none.

    Raises:
        LoginFailedError: the login failed.
    """
    port = spec.client.redirect_port if spec.client is not None else 0
    try:
        async with AsyncExitStack() as stack:
            sender = await stack.enter_async_context(_Sender(spec))
            try:
                listener = await stack.enter_async_context(listening(port))
            except OSError as error:
                why = f"port {port}, where the login comes back to, is taken ({error.strerror})"
                raise LoginFailedError(f"{spec.name}: {why}: end what has it") from None
            return await _authorize(
                spec,
                show,
                sender,
                listener,
                lacking=lacking,
                dialogue=dialogue,
                last_issuer=last_issuer,
            )
    except (AddressRefusedError, CallFailedError) as error:
        raise LoginFailedError(f"{spec.name} {error}") from None
    except DeviceError as error:
        raise LoginFailedError(f"{spec.name}: the login failed: {error}") from None
    except _LIBRARY_ERRORS as error:
        raise LoginFailedError(f"{spec.name}: the login failed: {_gist(error)}") from None


def _state_in(url: str) -> str:
    """Return the `state` parameter in `url`, the address of a login page.

    Raises:
        OAuthFlowError: the address has a fragment, or not exactly one `state`, because that is so
            in the address that the authorization server gave.
    """
    address = urlsplit(url)
    states = parse_qs(address.query, keep_blank_values=True).get("state", [])
    if address.fragment or len(states) != 1:
        raise OAuthFlowError("its login page's address leaves no room for a login")
    return states[0]


class _ClientReadyError(Exception):
    """Raised to leave the SDK's flow before it redirects, once the OAuth client is known."""


async def _authorize(
    spec: RemoteSpec,
    show: Show,
    sender: _Sender,
    listener: RedirectListener,
    *,
    lacking: Challenge | None,
    dialogue: LoginDialogue,
    last_issuer: str,
) -> LoginRecord:
    is_device = dialogue.way == "device"

    async def shown(url: str) -> None:
        if is_device:
            raise _ClientReadyError
        _check_pkce(provider.context.oauth_metadata)
        _check_issuer(spec, provider.context.oauth_metadata, last_issuer)
        _choose_method(spec, provider)
        await sender.policy.check(url, "a login page")
        listener.expect(_state_in(url))
        dialogue.take_pasted = listener.paste
        await show(url)

    async def came_back() -> AuthorizationCodeResult:
        answer = await listener.answer()
        if answer.error:
            raise OAuthFlowError(f"the authorization server says {answer.error[:60]!a}")
        return AuthorizationCodeResult(code=answer.code, state=answer.state, iss=answer.iss)

    provider = OAuthClientProvider(
        spec.url,
        OAuthClientMetadata.model_validate(
            {
                "client_name": "capd",
                "redirect_uris": [listener.url],
                "grant_types": [
                    "authorization_code",
                    "refresh_token",
                    *([DEVICE_GRANT] if is_device else []),
                ],
            }
        ),
        _MemoryStorage(client=_known_client(spec, listener.url)),
        shown,
        came_back,
        client_metadata_url=spec.client_metadata_url or None,
    )
    request = httpx2.Request(
        "GET" if spec.transport == "sse" else "POST",
        spec.url,
        headers={
            **spec.headers,
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": NEWEST_HANDSHAKE,  # so that `resource` is sent
        },
        json=None if spec.transport == "sse" else _hello(),
    )
    await sender.policy.check_server()
    async with aclosing(provider.async_auth_flow(request)) as flow:
        outgoing = await anext(flow)
        response = await sender.send(outgoing, is_discovered=False)
        if lacking is not None:
            response = _with_challenge(response, lacking)
        if response.status_code < _BAD_REQUEST:
            raise LoginFailedError(f"{spec.name} does not ask for a login")
        context = provider.context
        device_endpoint = ""
        with suppress(StopAsyncIteration):
            while True:
                before = context.oauth_metadata
                is_ready = False
                try:
                    outgoing = await flow.asend(response)
                except _ClientReadyError:
                    is_ready = True
                if is_device and context.oauth_metadata is not before:
                    # Only this response is the authorization server's own metadata.
                    device_endpoint = _device_endpoint(spec, response)
                if is_ready:
                    _check_issuer(spec, context.oauth_metadata, last_issuer)
                    _choose_method(spec, provider)
                    await log_in_by_device(provider, sender, device_endpoint, show, dialogue)
                    return _record(provider)
                if outgoing is request:  # the first request again, with a token: the flow is over
                    return _record(provider)
                response = await sender.send(outgoing)
                _check_registered(spec, provider, outgoing, response)
    raise LoginFailedError(
        f"{spec.name} answers with HTTP status {response.status_code} and asks for no login"
    )


def _device_endpoint(spec: RemoteSpec, response: httpx2.Response) -> str:
    """Return the URL at which a device login begins, from the authorization server's metadata.

    `response` is the answer to the request for the metadata.

    Raises:
        LoginFailedError: the metadata name no such URL.
    """
    found = response.json().get("device_authorization_endpoint")
    if not isinstance(found, str) or not found:
        raise LoginFailedError(
            f"{spec.name}: its authorization server has no device login:"
            f" run: capd login {spec.name} --paste"
        )
    return found


def _check_registered(
    spec: RemoteSpec,
    provider: OAuthClientProvider,
    sent: httpx2.Request,
    response: httpx2.Response,
) -> None:
    """Check that the authorization server did not refuse to register capd as an OAuth client.

    `response` is the answer to `sent`.

    Raises:
        LoginFailedError: `sent` was a registration, and the authorization server offers none. The
            text says how to name a client instead.
    """
    context = provider.context
    metadata = context.oauth_metadata
    is_refused = (
        metadata is not None
        and metadata.registration_endpoint is None
        and context.client_info is None
        and sent.method == "POST"
        and response.status_code >= _BAD_REQUEST
    )
    if not is_refused:
        return
    assert metadata is not None
    repair = "register a client there, and name it by `oauth` in the definition"
    if metadata.client_id_metadata_document_supported:
        repair = "set logins.client_metadata_url to the address of a client's metadata document"
    raise LoginFailedError(f"{spec.name}: its authorization server registers no clients: {repair}")


def _known_client(spec: RemoteSpec, redirect: str) -> OAuthClientInformationFull | None:
    """Return the OAuth client that the definition names, with `redirect` as its redirect address.

    Return None if capd has to register a client.
    """
    if spec.client is None:
        return None
    known: dict[str, object] = {"client_id": spec.client.id, "redirect_uris": [redirect]}
    if spec.client.secret:
        known["client_secret"] = spec.client.secret
    return OAuthClientInformationFull.model_validate(
        {**known, "token_endpoint_auth_method": "none"}
    )


def _choose_method(spec: RemoteSpec, provider: OAuthClientProvider) -> None:
    """Choose how `provider` sends the client's secret, among the ways that its server supports."""
    client, metadata = provider.context.client_info, provider.context.oauth_metadata
    if client is None or spec.client is None or not spec.client.secret:
        return
    taken = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
    is_posted = "client_secret_basic" not in (taken or ["client_secret_basic"])
    client.token_endpoint_auth_method = "client_secret_post" if is_posted else "client_secret_basic"


def _with_challenge(response: httpx2.Response, earlier: Challenge) -> httpx2.Response:
    """Return a 401 in place of `response`, with the demands of `response` and of `earlier`."""
    is_asking = response.status_code in {_UNAUTHORIZED, _FORBIDDEN}
    said = Challenge.of(response.headers.get("www-authenticate", "") if is_asking else "")
    header = said.with_more(earlier).header()
    return httpx2.Response(
        _UNAUTHORIZED, headers={"www-authenticate": header}, request=response.request
    )


async def refresh(
    spec: RemoteSpec, record: LoginRecord, advice: Callable[[int], str]
) -> LoginRecord:
    """Return `record`, the login at `spec`'s server, with fresh tokens.

    `advice` returns what a person should do about an HTTP status code.

    Raises:
        LoginNeededError: the authorization server refuses to refresh the login.
        NotSentError: the authorization server cannot be reached at the moment.
    """
    tokens = OAuthToken.model_validate(record.tokens)
    client = OAuthClientInformationFull.model_validate(record.client)
    metadata = OAuthClientMetadata(redirect_uris=client.redirect_uris)
    provider = OAuthClientProvider(spec.url, metadata, _MemoryStorage(tokens, client))
    provider.context.oauth_metadata = OAuthMetadata.model_validate(record.server_metadata)
    provider.context.token_expiry_time = 1.0  # long ago
    if record.resource_metadata is not None:
        provider.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
            record.resource_metadata
        )
    request = httpx2.Request("POST", spec.url, headers={"mcp-protocol-version": NEWEST_HANDSHAKE})
    try:
        async with (
            _Sender(spec) as sender,
            aclosing(provider.async_auth_flow(request)) as flow,
        ):
            outgoing = await anext(flow)
            response = await sender.send(outgoing)
            if response.status_code >= _FAULT or response.status_code == _TOO_MANY:
                raise NotSentError(
                    f"was not asked: its authorization server answers a refresh with HTTP status"
                    f" {response.status_code}"
                )
            await flow.asend(response)
    except (AddressRefusedError, CallFailedError) as error:
        raise NotSentError(f"was not asked, for its authorization server {error}") from None
    except _LIBRARY_ERRORS:
        raise LoginNeededError(advice(_UNAUTHORIZED)) from None
    if provider.context.current_tokens is None:
        raise LoginNeededError(advice(_UNAUTHORIZED))
    return _record(provider)


async def revoke(spec: RemoteSpec, record: LoginRecord) -> str:
    """Ask the authorization server to revoke the tokens of the login `record` (RFC 7009).

    Return why that failed; empty if they are revoked.

    Raises:
        NoRevocationError: the server names no endpoint for it.
    """
    try:
        metadata = OAuthMetadata.model_validate(record.server_metadata)
        client = OAuthClientInformationFull.model_validate(record.client)
    except ValueError:
        return "its metadata is not valid"
    if metadata.revocation_endpoint is None:
        raise NoRevocationError
    provider = OAuthClientProvider(
        spec.url,
        OAuthClientMetadata(redirect_uris=client.redirect_uris),
        _MemoryStorage(client=client),
    )
    provider.context.oauth_metadata = metadata
    provider.context.client_info = client
    try:
        async with _Sender(spec) as sender:
            # The refresh token first, because access tokens are made from it.
            for kind in ("refresh_token", "access_token"):
                token = record.tokens.get(kind)
                if not isinstance(token, str) or not token:
                    continue
                data, headers = provider.context.prepare_token_auth(
                    {"token": token, "token_type_hint": kind, "client_id": client.client_id or ""},
                    {"content-type": "application/x-www-form-urlencoded"},
                )
                request = httpx2.Request(
                    "POST", str(metadata.revocation_endpoint), data=data, headers=headers
                )
                response = await sender.send(request)
                if response.status_code != _OK:
                    return f"it answers with HTTP status {response.status_code}"
    except (AddressRefusedError, CallFailedError) as error:
        return f"it {error}"
    except _LIBRARY_ERRORS as error:
        return _gist(error)
    return ""


def _record(provider: OAuthClientProvider) -> LoginRecord:
    context = provider.context
    assert context.current_tokens
    assert context.client_info
    assert context.oauth_metadata
    resource = context.protected_resource_metadata
    return LoginRecord(
        tokens=_plain(context.current_tokens),
        client=_plain(context.client_info),
        server_metadata=_plain(context.oauth_metadata),
        resource_metadata=None if resource is None else _plain(resource),
        expires_at=calculate_token_expiry(context.current_tokens.expires_in),
    )


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.model_dump(mode="json", exclude_none=True)
    return plain


def _check_pkce(metadata: OAuthMetadata | None) -> None:
    methods = metadata.code_challenge_methods_supported if metadata is not None else None
    if "S256" not in (methods or []):
        raise OAuthFlowError(
            "its authorization server does not say that it supports PKCE with S256,"
            " and without that a stolen code would be enough to log in"
        )


def _check_issuer(spec: RemoteSpec, metadata: OAuthMetadata | None, last_issuer: str) -> None:
    """Check that a login with the definition's OAuth client is at the same issuer as the last one.

    `metadata` are those of the authorization server, and `last_issuer` is the last login's; empty
    if there was none. The MCP server says where its authorization server is. If it could name
    another one after the last login, that one would get the client's secret.

    Raises:
        LoginFailedError: the last login was at another authorization server.
    """
    if spec.client is None or not last_issuer or metadata is None:
        return
    if str(metadata.issuer) != last_issuer:
        account = f" --account {spec.account}" if spec.account else ""
        raise LoginFailedError(
            f"{spec.name} names another authorization server than at the last login"
            f" ({urlsplit(str(metadata.issuer)).netloc}), which does not know the client of its"
            f" definition: if you expect that, run: capd logout {spec.name}{account}, and log in"
            " again"
        )


def _gist(error: Exception) -> str:
    """Return the part of an error's text before the colon, which no server wrote."""
    if not isinstance(error, OAuthFlowError):
        return "its metadata is not valid"
    return str(error).partition(":")[0].partition(" (")[0] or type(error).__name__


def _hello() -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": NEWEST_HANDSHAKE,
            "capabilities": {},
            "clientInfo": {"name": "capd", "version": "0"},
        },
    }
