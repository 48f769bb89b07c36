"""Asks the model of a session's client a question on behalf of capd, by MCP sampling.

The client decides whether its user is asked first, and which model answers. If the client does not
offer sampling, nothing is sent.
"""

from typing import TYPE_CHECKING, Any

import msgspec
import trio

from capd.core.protocol.generations import is_stateless, offers
from capd.core.protocol.outcomes import RefusedError, ServerError
from capd_protos import curator as messages

if TYPE_CHECKING:
    from capd.actors.session.session import Session

LONGEST_WAIT = 300.0
"""Seconds: the client may ask its user first."""
METHOD = "sampling/createMessage"


class _Content(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Sampled(msgspec.Struct):
    content: _Content | list[_Content]


async def sample(session: "Session", request: messages.SampleText) -> messages.Reply:
    """Return the answer of the client's model, or the reason why there is none."""
    name = session.place.client or "the client"
    if is_stateless(session.connection.client):
        text = f"{name} speaks MCP without a handshake, and cannot be asked outside of a call"
        return messages.CuratorRefused("no_sampling", text)
    if not offers(session.connection.client, METHOD):
        return messages.CuratorRefused("no_sampling", f"{name} offers no sampling (MCP)")
    params: dict[str, Any] = {
        "messages": [{"role": "user", "content": {"type": "text", "text": request.text}}],
        "systemPrompt": request.system,
        "maxTokens": request.max_tokens,
        "includeContext": "none",
    }
    try:
        with trio.fail_after(LONGEST_WAIT):
            answer = await session.connection.ask(
                METHOD, msgspec.json.encode(params), lambda _: None
            )
        said = msgspec.json.decode(answer, type=_Sampled).content
    except trio.TooSlowError:
        why = f"{name} did not answer within {LONGEST_WAIT:g} s"
        return messages.CuratorRefused("not_sampled", why)
    except (ServerError, RefusedError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return messages.CuratorRefused("not_sampled", f"{name} did not answer: {error}")
    blocks = said if isinstance(said, list) else [said]
    return messages.TextSampled(session.place.key, "".join(block.text for block in blocks))
