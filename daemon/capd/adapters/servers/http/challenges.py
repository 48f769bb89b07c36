"""The demands that a server makes on a login, kept until a person logs in (RFC 6750, section 3).

Some servers complete the handshake with everybody, and demand a login or more scopes at a call.
capd does not open a login page at that moment. The next `capd login` asks for the missing scopes
and for those granted before, so that no tool loses its rights.
"""

from dataclasses import dataclass

from capd.core.lazy_patterns import lazy_pattern

MOST_SCOPES = 100
_FIELD = lazy_pattern(r'(?<![\w-])(scope|resource_metadata)\s*=\s*(?:"([^"]*)"|([^\s",]+))')
_SCOPE = lazy_pattern(r"[\x21\x23-\x5b\x5d-\x7e]+")
_URL = lazy_pattern(r"[\x21\x23-\x5b\x5d-\x7e]{1,2000}")


@dataclass(frozen=True, slots=True)
class Challenge:
    """All demands that the server has made on a login."""

    scopes: tuple[str, ...] = ()
    resource_metadata: str = ""
    """The address of the server's metadata, if the server gave it."""

    @classmethod
    def of(cls, header: str) -> "Challenge":
        """Return the demands in a `WWW-Authenticate` header."""
        found = {m[1]: m[2] or m[3] or "" for m in _FIELD.finditer(header)}
        url = found.get("resource_metadata", "")
        return cls(scopes_of(found.get("scope", "")), url if _URL.fullmatch(url) else "")

    def with_more(self, later: "Challenge") -> "Challenge":
        """Return these demands merged with those in a later answer of the server."""
        scopes = tuple(dict.fromkeys((*self.scopes, *later.scopes)))[:MOST_SCOPES]
        return Challenge(scopes, later.resource_metadata or self.resource_metadata)

    def header(self) -> str:
        """Return the demands in the form of a `WWW-Authenticate` header."""
        said = ['error="insufficient_scope"'] if self.scopes else []
        if self.scopes:
            said.append(f'scope="{" ".join(self.scopes)}"')
        if self.resource_metadata:
            said.append(f'resource_metadata="{self.resource_metadata}"')
        return ("Bearer " + ", ".join(said)).strip()


def scopes_of(text: str) -> tuple[str, ...]:
    """Return the valid OAuth scopes in a text such as `read write`, each once."""
    scopes = (each for each in text.split(" ") if _SCOPE.fullmatch(each))
    return tuple(dict.fromkeys(scopes))[:MOST_SCOPES]
