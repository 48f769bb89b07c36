"""Finds the secrets in a definition: by the names of values, and by what a text looks like.

Hiding too much costs one more key in the store. Hiding too little leaves a token in a file. So
every value whose name suggests a secret is hidden, and so is every text that looks like a token.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from capd_client.importing.definition import Hidden, Part, Reference, Text
from capd_client.importing.variables import joined, key_of

_NAME = re.compile(
    r"(?:^|[^a-z])(?:token|secret|passwd|password|passphrase|pwd|pass|pat|auth|authorization"
    r"|credentials?|cookie|bearer|dsn|jwt|signature"
    r"|connection[_-]?(?:string|uri|url)|(?:api|access|auth|private|secret|service|account"
    r"|subscription|license|encryption|signing|session|client|app|master)[_-]?(?:key|id[_-]?key))"
    r"(?:$|[^a-z])|(?:apikey|accesskey|authtoken|accesstoken|secretkey|privatekey|apitoken)"
    r"|(?:^|[_-])key$",
)
_NO_SECRET = re.compile(
    r"(?:^|[_-])(?:path|file|dir|folder|type|mode|method|scheme|name|enabled|timeout|ttl|limit"
    r"|budget|count|length|size|port|host|region|scopes?|endpoint|ur[il]|domain)$"
    r"|(?:^|[_-])(?:max|min|num|total)[_-](?:[a-z]+[_-])*tokens?$"
)
"""Names whose value is not a secret, unless it looks like a token: `TOKEN_FILE`, `max_tokens`."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LOOKS = re.compile(
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|gl[a-z]{2,5}-[A-Za-z0-9_-]{20,}"
    r"|sk-[A-Za-z0-9_-]{16,}|[rsp]k_(?:live|test)_[A-Za-z0-9]{10,}|xox[abeprs]-[A-Za-z0-9-]{10,}"
    r"|xapp-[A-Za-z0-9-]{10,}|A[KS]IA[0-9A-Z]{16}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{40,}"
    r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}"
    r"|(?:ntn|secret)_[A-Za-z0-9]{20,}|lin_(?:api|oauth)_[A-Za-z0-9]{20,}|fc-[a-f0-9]{20,}"
    r"|tvly-[A-Za-z0-9-]{16,}|pplx-[A-Za-z0-9]{20,}|BSA[A-Za-z0-9_-]{20,}|dop_v1_[a-f0-9]{20,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|sbp_[a-f0-9]{20,}|figd_[A-Za-z0-9_-]{20,}"
    r"|pat[A-Za-z0-9]{14}\.[a-f0-9]{20,}|ATATT[A-Za-z0-9_=-]{20,}|glsa_[A-Za-z0-9_]{20,}"
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
    # After `@`, `:` or `#` such digits are the digest of an image or the commit of a package.
    r"|(?<![A-Za-z0-9@:#])[a-fA-F0-9]{32,}(?![A-Za-z0-9])"
    r"|(?<![A-Za-z0-9_+/=.-])(?=[A-Za-z0-9_+/=]*[a-z])(?=[A-Za-z0-9_+/=]*[A-Z])"
    r"(?=(?:[A-Za-z_+/=]*[0-9]){3})[A-Za-z0-9_+=]{24,}(?![A-Za-z0-9_+/=.-])",
    re.DOTALL,
)
"""Tokens with a known prefix, private keys, and long mixtures of upper case, lower case and digits.
"""
_USER_INFO = re.compile(r"(?<=://)(?P<user>[^:/@\s]{0,256}):(?P<password>[^@\s]{1,1024})(?=@)")
_QUERY = re.compile(r"(?<=[?&])(?P<name>[^=&#\s]+)=(?P<value>[^&#\s]+)")
_SEGMENT = re.compile(r"(?<=/)(?=[^/?#]*[0-9])(?=[^/?#]*[A-Za-z])[A-Za-z0-9_=.~-]{24,}(?=[/?#]|$)")
"""A part of a URL's path that looks random, as a token does."""
_ASSIGNED = re.compile(r"-{0,2}(?P<name>[A-Za-z_][\w.-]*)\s*[=:](?!//)\s*(?P<value>.+)", re.DOTALL)
_MEMBER = re.compile(
    r'\\?"(?P<name>[\w.-]+)\\?"\s*:\s*\\?"(?:(?:Bearer|Basic)\s+)?(?P<value>[^"\\]+)'
    r"|(?:^|[;,\s])(?P<key>[A-Za-z][\w .-]{0,60}?)\s*=\s*(?P<word>[^;,\s\"']+)"
)
"""A member of a JSON object, or a part of a connection string."""
_SCHEME = re.compile(r"(?P<scheme>(?:Bearer|Basic|Token|ApiKey|Api-Key|Digest)\s+)", re.IGNORECASE)
_STANDS_FOR = re.compile(
    r"<[^<>]*>|\[[^\[\]]*\]|your[ _-].*|my[ _-].*(?:key|token|secret)|.*[ _-]here"
    r"|x{3,}|\*{3,}|\.{3}"
    r"|change[ _-]?me|replace[ _-]?me|todo|insert[ _-].*|(?:api|access)[ _-]?(?:key|token)"
    r"|token|secret",
    re.IGNORECASE,
)
"""Placeholders that documentation has in place of a secret."""
_SWITCH = re.compile(r"-+(?:no|disable|enable|skip|with|without|use|allow|require)[-_]")
"""The beginnings of flags that take no value."""
_HARMLESS = re.compile(r"true|false", re.IGNORECASE)
_OF_A_FILE = re.compile(r"(?:^|[_-])(?:(?:private|ssh|account)[_-])?key$|credentials?$")
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w./@ -]+")
"""The path of a file. It is no secret after a flag whose value may be a file (`_OF_A_FILE`)."""


def is_secret_name(name: str) -> bool:
    """Tell whether the name of a variable, header, flag or parameter suggests a secret value."""
    words = _CAMEL.sub("_", name.lstrip("-")).casefold()
    return bool(_NAME.search(words)) and not _NO_SECRET.search(words)


def is_placeholder(text: str) -> bool:
    """Tell whether `text` only stands for a secret, as in documentation: `<token>`, `your-key`."""
    return bool(_STANDS_FOR.fullmatch(text.strip()))


def of_variable(name: str, text: Text) -> Text:
    """Return `text`, the value of the environment variable `name`, with its secrets hidden.

    If the name suggests a secret, a blank value or a placeholder becomes a reference to a key of
    that name.
    """
    if not is_secret_name(name):
        return _by_looks(text, name, is_named=len(text) == 1)
    only = "" if not text else text[0] if len(text) == 1 else None
    plain = only if isinstance(only, str) else None
    if plain is not None and (not plain.strip() or is_placeholder(plain)):
        return (Reference(key_of(name)),)
    if plain is not None and _HARMLESS.fullmatch(plain):
        return text
    return _all_of(text, key_of(name), is_named=True)


def of_header(name: str, text: Text) -> Text:
    """Return `text`, the value of the header `name`, with its secrets hidden."""
    if not is_secret_name(name):
        return _by_looks(text, name)
    hint = "TOKEN" if name.casefold() == "authorization" else key_of(name)
    return _all_of(text, hint)


def of_address(text: Text) -> Text:
    """Return a URL with its password, its secret parameters and all tokens hidden."""
    return joined(_each_plain(text, _of_plain_address))


def of_line(line: Iterable[Text]) -> tuple[Text, ...]:
    """Return a program and its arguments with their secrets hidden.

    The argument after a flag such as `--api-key` is a secret, unless it is the path of a file.
    """
    made: list[Text] = []
    flag = ""
    for text in line:
        word = text[0] if len(text) == 1 and isinstance(text[0], str) else ""
        is_flag = re.fullmatch(r"--[a-z][\w-]*(=.*)?|-[A-Za-z]", word) is not None
        is_file = bool(_OF_A_FILE.search(flag) and _PATH.fullmatch(word))
        is_value = flag and not is_flag and not is_file
        made.append(_all_of(text, key_of(flag)) if is_value else _of_argument(text))
        is_flag = word.startswith("-") and not re.search(r"[=\s]", word) and not _SWITCH.match(word)
        flag = word.lstrip("-") if is_flag and is_secret_name(word) else ""
    return tuple(made)


def _of_argument(text: Text) -> Text:
    """Return one argument with its secrets hidden.

    A secret is the VALUE of `--api-key=VALUE`, `TOKEN=VALUE` and `Authorization: VALUE`, also after
    a flag (`--header=Authorization: VALUE`), and any text that looks like a token.
    """
    first = text[0] if text and isinstance(text[0], str) else ""
    match = _ASSIGNED.match(first)
    if match and not is_secret_name(match["name"]):
        match = _ASSIGNED.match(first, match.start("value"))
    if match and is_secret_name(match["name"]):
        name, at = match["name"], match.start("value")
        hint = "TOKEN" if name.casefold() == "authorization" else key_of(name)
        return joined((first[:at], *_all_of(joined((first[at:], *text[1:])), hint)))
    return joined(_each_plain(text, _of_plain_address))


def _all_of(text: Text, hint: str, *, is_named: bool = False) -> Text:
    """Return `text` with all plain parts hidden, except a scheme such as `Bearer ` in front.

    `hint` is the preferred name of the secret's key, and `is_named` as for `Hidden`.
    """
    made: list[Part] = []
    for part in text:
        if not isinstance(part, str):
            made.append(part)
            continue
        match = _SCHEME.match(part)
        start = match["scheme"] if match else ""
        rest = part[len(start) :]
        if not rest.strip():
            made.append(part)
        elif is_placeholder(rest) and len(text) == 1:
            made += [start, Hidden("", hint, is_named)]
        else:
            made += [start, Hidden(rest, hint, is_named)]
    return joined(made)


def _by_looks(text: Text, name: str, *, is_named: bool = False) -> Text:
    def hide(plain: str) -> list[Part]:
        parts = _of_plain_address(plain)
        if is_named and any(isinstance(part, Hidden) for part in parts):
            # All of the text is hidden, because a variable has one value and one key.
            return [Hidden(plain, key_of(name), is_named=True)]
        return [Hidden(p.value, key_of(name)) if isinstance(p, Hidden) else p for p in parts]

    return joined(_each_plain(text, hide))


def _of_plain_address(plain: str) -> list[Part]:
    """Return `plain`, a URL or any other text, in parts, with its secrets hidden.

    They are found by their place in a URL, JSON or connection string, or by what they look like.
    """
    spans = [(*match.span("password"), "PASSWORD") for match in _USER_INFO.finditer(plain)]
    spans += [
        (*match.span("value"), key_of(match["name"]))
        for match in _QUERY.finditer(plain)
        if is_secret_name(match["name"])
    ]
    spans += [
        (*match.span("value" if match["name"] else "word"), key_of(name))
        for match in _MEMBER.finditer(plain)
        if is_secret_name(name := match["name"] or match["key"])
    ]
    spans += [(*match.span(), "TOKEN") for match in _LOOKS.finditer(plain)]
    if "://" in plain:
        spans += [(*match.span(), "PATH") for match in _SEGMENT.finditer(plain)]
    parts: list[Part] = []
    at = 0
    # Of two overlapping matches, take the longer one: it contains the other.
    for start, end, hint in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= at:
            parts += [plain[at:start], Hidden(plain[start:end], hint)]
            at = end
    return [*parts, plain[at:]]


def _each_plain(text: Text, hide: Callable[[str], Iterable[Part]]) -> Iterator[Part]:
    for part in text:
        if isinstance(part, str):
            yield from hide(part)
        else:
            yield part
