"""Run as a program: an MCP server of the SDK, on a port of its own, which it prints.

sdk_site.py streamable | json | sse | login
"""

import secrets
import socket
import sys
import time
from typing import Any

import anyio
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

TOKEN_LIFE = 3600


class Accounts(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorization server that approves every login and counts the requests."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refreshes: dict[str, RefreshToken] = {}
        self.refreshed = 0
        self.is_strict = False

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        assert client.client_id
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(
            str(params.redirect_uri), code=code.code, state=params.state, iss=self.issuer
        )

    async def load_authorization_code(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 - the SDK's signature
        authorization_code: str,
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 - the SDK's signature
        refresh_token: str,
    ) -> RefreshToken | None:
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.is_strict:
            raise TokenError("invalid_grant")
        self.refreshed += 1
        del self.refreshes[refresh_token.token]  # good for one use
        return self._issue(client, scopes, None)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    def _issue(
        self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None
    ) -> OAuthToken:
        assert client.client_id
        access = AccessToken(
            token=f"access-{secrets.token_hex(8)}",
            client_id=client.client_id,
            scopes=scopes,
            expires_at=int(time.time()) + TOKEN_LIFE,
            resource=resource,
        )
        refresh = RefreshToken(
            token=f"refresh-{secrets.token_hex(8)}", client_id=client.client_id, scopes=scopes
        )
        self.access[access.token] = access
        self.refreshes[refresh.token] = refresh
        return OAuthToken(
            access_token=access.token,
            expires_in=TOKEN_LIFE,
            refresh_token=refresh.token,
            scope=" ".join(scopes),
        )


def login_server(base: str) -> MCPServer:
    accounts = Accounts(f"{base}/")
    server = MCPServer(
        "guarded",
        log_level="CRITICAL",
        auth_server_provider=accounts,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(base),
            resource_server_url=AnyHttpUrl(f"{base}/mcp"),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            validate_token_resource=False,
        ),
    )

    @server.tool()
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool()
    async def who() -> str:
        """Return the id of the client that makes this request."""
        token = get_access_token()
        return token.client_id if token is not None else ""

    async def expire(request: Request) -> Response:
        accounts.access.clear()
        accounts.is_strict = request.query_params.get("strict") == "yes"
        return JSONResponse({})

    async def counts(request: Request) -> Response:
        return JSONResponse({"refreshed": accounts.refreshed, "clients": len(accounts.clients)})

    server.custom_route("/expire", methods=["POST"])(expire)
    server.custom_route("/counts", methods=["GET"])(counts)
    return server


def plain_server() -> MCPServer:
    server = MCPServer("plain", version="7", log_level="CRITICAL")
    seen: list[str] = []

    @server.tool()
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool()
    async def weigh(number: int, share: float) -> dict[str, Any]:
        """Return numbers."""
        return {"number": number, "share": share}

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def work(steps: int, ctx: Context) -> str:
        """Report progress."""
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        return "worked"

    @server.tool()
    async def hang(ctx: Context) -> str:
        """Never end."""
        seen.append("begun")
        await ctx.report_progress(0, 1, "begun")
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("cancelled")
        return ""

    @server.tool()
    async def ends() -> list[str]:
        """Return how the hanging calls ended."""
        with anyio.move_on_after(10):
            while "cancelled" not in seen:
                await anyio.sleep(0.01)
        return seen

    add_asking_tools(server)
    return server


def add_asking_tools(server: MCPServer) -> None:
    @server.tool()
    async def ask_model(ctx: Context) -> str:
        """Ask the client's model a question."""
        result = await ctx.session.create_message(
            messages=[SamplingMessage(role="user", content=TextContent(text="say hi"))],
            max_tokens=10,
            related_request_id=ctx.request_id,
        )
        assert isinstance(result.content, TextContent)
        return result.content.text

    @server.tool()
    async def ask_person(ctx: Context) -> str | InputRequiredResult:
        """Ask in the way of the stateless generation."""
        answers = ctx.input_responses
        if answers is None:
            form = ElicitRequestFormParams(
                message="who?", requested_schema={"type": "object", "properties": {}}
            )
            return InputRequiredResult(
                input_requests={"who": ElicitRequest(params=form)}, request_state="half-way"
            )
        answer = answers["who"]
        assert isinstance(answer, ElicitResult)
        return f"{answer.action} {ctx.request_state}"

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Get one more tool."""

        def grown() -> str:
            return "grown"

        server.add_tool(grown)
        await ctx.session.send_tool_list_changed()
        return "grew"


def main() -> None:
    mode = sys.argv[1]
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    if mode == "sse":
        app = plain_server().sse_app()
    else:
        server = login_server(base) if mode == "login" else plain_server()
        app = server.streamable_http_app(json_response=mode == "json")
    print(base, flush=True)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


main()
