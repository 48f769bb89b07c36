"""Calls of a session's tools that come from the command line, and not from its client."""

import msgspec

from capd.actors.session.session import Curator
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.large_frames import held
from capd.adapters.servers.callers import CallHooks
from capd.core.protocol.eras import raw
from capd.core.protocol.outcomes import CallFailedError, ServerError
from capd_protos import curator as messages


async def called_from_outside(curator: Curator, request: messages.CallTool) -> messages.ToolCalled:
    """Return the one outcome of a call that no client of the session has made."""
    key = curator.place.key
    members = {"name": raw(request.name), "arguments": msgspec.Raw(request.arguments)}
    caller = CallHooks(client=curator.client)
    try:
        result = await held(await curator.replied(Request("tools/call", members, caller)))
    except UnknownNameError as error:
        return messages.ToolCalled(key, "not_found", message=str(error))
    except CallFailedError as error:
        return messages.ToolCalled(key, error.outcome, message=str(error))
    except ServerError as error:
        return messages.ToolCalled(key, "error", error.error)
    return messages.ToolCalled(key, "result", result)
