"""Checks a server's questions to a user, and shows the user which server asks.

The message begins with the server's name from the configuration, never with the name that the
server gives itself. A form must not ask for a secret (MCP, "Elicitation"): the secret would pass
through the client's transcript. A URL is shown with its whole host, and must be https or on this
machine.
"""

import ipaddress
from itertools import pairwise
from urllib.parse import urlsplit

import msgspec

from capd.core.definitions.hidden_text import cleaned
from capd.core.lazy_patterns import lazy_pattern
from capd.core.protocol.generations import (
    Members,
    joined,
    members_of,
    members_or_none,
    raw,
    text_of,
)
from capd.core.protocol.outcomes import RefusedError
from capd.core.protocol.server_replies import decoded_members
from capd.core.results.json_container import INPUT_REQUESTS, may_spell
from capd.core.results.large_results import LargeResult, Result
from capd_protos.codec import MalformedError
from capd_protos.types import ServerName

METHOD = "elicitation/create"
MOST_BYTES = 256 * 1024
"""The most bytes of an elicitation's params: enough for a form with a few hundred fields."""

MOST_QUESTIONS = 64
"""How many questions of one server may wait for answers of clients at the same time."""

_WORDS = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LONGEST_NAME = 200
_SECRETS = frozenset(
    {
        *("password", "passwd", "pwd", "passphrase", "passcode", "secret", "credential"),
        *("credentials", "apikey", "privatekey", "otp", "totp", "cvv", "cvc", "mnemonic"),
    }
)
_SECRET_PAIRS = frozenset(
    {
        *(("api", "key"), ("private", "key"), ("access", "key"), ("encryption", "key")),
        *(("signing", "key"), ("auth", "key"), ("ssh", "key"), ("access", "token")),
        *(("security", "code"), ("card", "number"), ("pin", "code"), ("recovery", "code")),
        *(("seed", "phrase"), ("recovery", "phrase")),
    }
)
_POSITIONS = frozenset({"next", "page", "cursor", "continuation", "continue", "sync", "stop"})
"""A name with one of these words, such as `page_token`, asks for a position, not for a secret."""
_ABOUT_IT = frozenset(
    {
        *("name", "names", "id", "ids", "path", "file", "filename", "length", "count", "type"),
        *("policy", "hint", "url", "uri", "label", "format", "prefix", "expiry", "location"),
        *("scope", "manager", "store", "provider", "description", "ref", "reference"),
    }
)
"""A name that ends with one of these words asks for something about a secret, not the secret."""


class _Field(msgspec.Struct):
    type: object = None
    title: object = None
    format: object = None
    writeOnly: object = None  # noqa: N815 - JSON Schema's name
    enum: object = None
    oneOf: object = None  # noqa: N815
    const: object = None


def elicitation_for_client(server: ServerName, params: bytes) -> bytes:
    """Return the params of an elicitation with the server's name before the message.

    Raises:
        RefusedError: a server may not ask a person this.
        MalformedError: the params are not an object.
    """
    if len(params) > MOST_BYTES:
        raise RefusedError(f"a question to a person has at most {MOST_BYTES} bytes")
    members = members_of(params)
    who = str(server)
    if text_of(members.get("mode")) == "url":
        who += f", opens {_host(text_of(members.get('url')))}"
    elif field := secret_field(members):
        raise RefusedError(
            f"the form asks for {field!a}, which looks like a secret: "
            "ask for it by URL, or take it from the environment"
        )
    message = cleaned(text_of(members.get("message"))).text
    return joined({**members, "message": raw(f"[{who}] {message}")})


def result_for_client(server: ServerName, result: Result) -> Result:
    """Return a server's result with the server's name in each elicitation in it.

    A result without elicitations is returned unchanged.

    Raises:
        RefusedError: a server may not ask a person this.
    """
    if isinstance(result, LargeResult):
        if result.has_questions:
            raise RefusedError("the server asks for input with a result that is too long for it")
        return result
    return questions_for_client(server, result)


def questions_for_client(server: ServerName, data: bytes) -> bytes:
    """Return a JSON object with the server's name in each elicitation in its `inputRequests`.

    `data` is a result, or the params of a notification about a task. It is returned unchanged if it
    has no elicitations. Which generation the server speaks does not matter, because only the client
    decides whether it answers them.

    Raises:
        RefusedError: a server may not ask a person this.
    """
    if not may_spell(data, INPUT_REQUESTS):
        return data
    is_changed = False
    try:
        members = decoded_members(data)
        requests = decoded_members(bytes(members.get(INPUT_REQUESTS, b"")))
        if len(requests) > MOST_QUESTIONS:
            raise RefusedError(f"a server may ask {MOST_QUESTIONS} questions at once, not more")
        for key, written in requests.items():
            request = decoded_members(bytes(written))
            if text_of(request.get("method")) == METHOD:
                params = elicitation_for_client(server, bytes(request.get("params", b"{}")))
                requests[key] = msgspec.Raw(joined({**request, "params": msgspec.Raw(params)}))
                is_changed = True
    except MalformedError as error:
        raise RefusedError(f"the server asks wrongly: {error}") from None
    if not is_changed:
        return data
    return joined({**members, INPUT_REQUESTS: msgspec.Raw(joined(requests))})


def secret_field(params: Members) -> str:
    """Return the name of the first text field that asks for a secret; empty if there is none.

    `params` are those of an elicitation by form.
    """
    schema = members_or_none(bytes(params.get("requestedSchema", b"")))
    for name, written in members_or_none(bytes(schema.get("properties", b""))).items():
        try:
            field = msgspec.json.decode(written, type=_Field)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        is_text = field.type in (None, "string") or isinstance(field.type, list)
        is_choice = any(each is not None for each in (field.enum, field.oneOf, field.const))
        if not is_text or is_choice:
            continue
        is_marked = field.format == "password" or field.writeOnly is True
        title = field.title if isinstance(field.title, str) else ""
        # A person does not see hidden characters, so they do not make another name.
        if is_marked or any(is_secret(cleaned(each).text) for each in (name, title)):
            return name[:_LONGEST_NAME]
    return ""


def is_secret(name: str) -> bool:
    """Tell whether a field of this name, such as `api_key` or `dbPassword`, asks for a secret."""
    words = [word.lower() for word in _WORDS.findall(name[:_LONGEST_NAME])]
    if not words or words[-1] in _ABOUT_IT:
        return False
    if not _SECRETS.isdisjoint(words) or not _SECRET_PAIRS.isdisjoint(pairwise(words)):
        return True
    return words[-1] == "token" and _POSITIONS.isdisjoint(words)


def _host(url: str) -> str:
    """Return the host, with its port, of a URL that a person may be sent to.

    Raises:
        RefusedError: the URL leads to another host than it seems to, or over a connection that
        others can read.
    """
    is_plain = url.isascii() and url.isprintable() and not {" ", "\\"} & set(url)
    try:
        split = urlsplit(url) if is_plain else None
        host = split.hostname or "" if split is not None else ""
    except ValueError:
        split, host = None, ""
    if split is None or not host or "@" in split.netloc:
        raise RefusedError("the URL of the page is none that can be shown to a person as it is")
    if split.scheme != "https" and not (split.scheme == "http" and _is_here(host)):
        raise RefusedError(f"a page is opened over https, and {host} is not")
    return split.netloc


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
