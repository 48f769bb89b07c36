"""The resources of ToolHive's operator, as far as our manifests use them.

Written from the published definitions in `deploy/charts/operator-crds/files/crds` of
stacklok/toolhive, version `toolhive.stacklok.dev/v1beta1`: mcpservers at commit 0166a54e0d65,
mcpoidcconfigs at commit 0a09b463eb7b. A field that is not here is refused, also if the definitions
have it: add it from there.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

API = "toolhive.stacklok.dev/v1beta1"

Port = Annotated[int, Meta(ge=1, le=65535)]
Name = Annotated[str, Meta(min_length=1)]


class Named(Struct, forbid_unknown_fields=True):
    """The metadata of a resource; both kinds live in a namespace."""

    name: Name
    namespace: Name


class InlineOIDC(Struct, forbid_unknown_fields=True):
    """An OpenID Connect issuer; without `jwksUrl` its keys are found through its discovery."""

    issuer: str
    jwksUrl: str | None = None  # noqa: N815 - the published name
    clientId: str | None = None  # noqa: N815


class OIDCConfigSpec(Struct, forbid_unknown_fields=True):
    """One of two kinds of issuer; of the cluster's own no manifest of ours makes use."""

    type: Literal["inline"]
    inline: InlineOIDC
    """Has to be there, and alone, if the type is `inline`."""


class OIDCConfig(Struct, forbid_unknown_fields=True):
    """A resource of kind MCPOIDCConfig."""

    apiVersion: Literal["toolhive.stacklok.dev/v1beta1"]  # noqa: N815
    kind: Literal["MCPOIDCConfig"]
    metadata: Named
    spec: OIDCConfigSpec


class OIDCReference(Struct, forbid_unknown_fields=True):
    """Which issuer's tokens a server accepts, and for which audience."""

    name: Name
    audience: Name
    resourceUrl: str | None = None  # noqa: N815
    scopes: list[str] | None = None


class PermissionProfile(Struct, forbid_unknown_fields=True):
    """The permissions of the server's container."""

    type: Literal["builtin"]
    name: Literal["none", "network"]


class Secret(Struct, forbid_unknown_fields=True):
    """One key of a secret, as an environment variable of the server."""

    name: str
    key: str
    targetEnvName: str | None = None  # noqa: N815


class Amounts(Struct, forbid_unknown_fields=True):
    """Of processor and memory; texts, other than in Kubernetes, where a number will do."""

    cpu: str | None = None
    memory: str | None = None


class Resources(Struct, forbid_unknown_fields=True):
    """The resource requests and limits of the server's container."""

    limits: Amounts | None = None
    requests: Amounts | None = None


class ServerSpec(Struct, forbid_unknown_fields=True):
    """One MCP server and the proxy before it."""

    image: str
    transport: Literal["stdio", "streamable-http", "sse"] | None = None
    mcpPort: Port | None = None  # noqa: N815
    proxyPort: Port | None = None  # noqa: N815
    """8080 where it is left out, and `transport` is then `stdio`."""
    oidcConfigRef: OIDCReference | None = None  # noqa: N815
    permissionProfile: PermissionProfile | None = None  # noqa: N815
    secrets: list[Secret] | None = None
    resources: Resources | None = None
    podTemplateSpec: dict[str, Any] | None = None  # noqa: N815
    """A PodTemplateSpec of Kubernetes; the definition takes anything, so check it as one."""


class Server(Struct, forbid_unknown_fields=True):
    """A resource of kind MCPServer."""

    apiVersion: Literal["toolhive.stacklok.dev/v1beta1"]  # noqa: N815
    kind: Literal["MCPServer"]
    metadata: Named
    spec: ServerSpec

    @property
    def service(self) -> str:
        """The name that the operator gives the service of the proxy (`CreateProxyServiceName`)."""
        return f"mcp-{self.metadata.name}-proxy"
