"""Logs a person in with a code that they enter on any device (RFC 8628).

    ask for a code ──> show it ──> poll: pending, slower, fault ──> poll again
                                     ├──tokens──> done
                                     └──refused, expired──> failed

The SDK's flow provides discovery and the client, and is left at the point where it would redirect.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Protocol

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthToken

from capd.adapters.servers.http.address_policy import AddressPolicy
from capd.adapters.servers.http.login_dialogue import LoginDialogue
from capd.core.protocol.outcomes import CallFailedError
from capd.core.servers.login_answers import (
    DEVICE_GRANT,
    DeviceError,
    DeviceGrant,
    next_interval,
    read_grant,
)

_OK, _FAULT = 200, 500


class Sender(Protocol):
    """Sends requests to an authorization server, with every address checked."""

    policy: AddressPolicy

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send `request` to an authorization server; return the response, read in full."""
        ...


async def log_in_by_device(
    provider: OAuthClientProvider,
    sender: Sender,
    endpoint: str,
    show: Callable[[str], Awaitable[None]],
    dialogue: LoginDialogue,
) -> None:
    """Have a person enter a code on any device; afterwards `provider`'s context has the tokens.

    `endpoint` is the URL at which a device login begins. `show` gets the address at which the
    person has to enter the code, and `dialogue` gets the code.

    Raises:
        DeviceError: the login ended without tokens.
        AddressRefusedError, CallFailedError: the authorization server cannot be reached, or gave no
            usable response.
    """
    context = provider.context
    assert context.client_info is not None
    wanted = {"scope": context.client_metadata.scope} if context.client_metadata.scope else {}
    response = await sender.send(_form(provider, endpoint, wanted))
    if response.status_code != _OK:
        error = _error_of(response)
        raise DeviceError(
            f"its authorization server refuses a device login (HTTP status"
            f" {response.status_code}{f', {error[:60]!a}' if error else ''})"
        )
    grant = read_grant(_document(response))
    for page in grant.pages:
        await sender.policy.check(page, "a login page")
    dialogue.user_code = grant.user_code
    await show(grant.address)
    with trio.move_on_after(grant.expires_in):
        tokens = await _polled(provider, sender, grant)
        if tokens.scope is None:
            tokens.scope = context.client_metadata.scope
        context.current_tokens = tokens
        context.update_token_expiry(tokens)
        return
    raise DeviceError("its code has expired")


async def _polled(provider: OAuthClientProvider, sender: Sender, grant: DeviceGrant) -> OAuthToken:
    metadata = provider.context.oauth_metadata
    assert metadata is not None
    asked = {"grant_type": DEVICE_GRANT, "device_code": grant.device_code}
    interval = grant.interval
    while True:
        await trio.sleep(interval)
        try:
            response = await sender.send(_form(provider, str(metadata.token_endpoint), asked))
        except CallFailedError:
            interval = next_interval(interval, _FAULT, "")
            continue
        if response.status_code == _OK:
            return OAuthToken.model_validate_json(response.content)
        interval = next_interval(interval, response.status_code, _error_of(response))


def _form(provider: OAuthClientProvider, url: str, fields: dict[str, str]) -> httpx2.Request:
    """Return a POST of the form `fields` to `url`, authenticated as the client has registered."""
    context = provider.context
    assert context.client_info is not None
    data = {**fields, "client_id": context.client_info.client_id}
    if context.should_include_resource_param(context.protocol_version):
        data["resource"] = context.get_resource_url()
    data, headers = context.prepare_token_auth(
        data, {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    )
    return httpx2.Request("POST", url, data=data, headers=headers)


def _document(response: httpx2.Response) -> object:
    try:
        document: object = json.loads(response.content)
    except (ValueError, RecursionError):
        return None
    return document


def _error_of(response: httpx2.Response) -> str:
    document = _document(response)
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, str) else ""
