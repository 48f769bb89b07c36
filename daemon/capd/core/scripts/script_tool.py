"""The arguments and the definition of capd's own tool `script_run`."""

import msgspec

from capd.core.errors import CapdError
from capd_protos.types import WireName

SCRIPT_RUN = WireName("script_run")
MOST_CODE = 64_000
"""The most characters of one script."""
MOST_INPUT_BYTES = 1 << 20

DEFINITION = msgspec.json.encode(
    {
        "name": SCRIPT_RUN,
        "title": "Run a script",
        "description": (
            "Run Python that calls installed tools: for three or more calls, or to use only part "
            "of long results. `x = await server.tool(arg=1)`, asyncio.gather, "
            "except ToolError; the last expression is the result. Without code: the functions."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {"code": {"type": "string"}, "inputs": {"type": "object"}},
        },
        "annotations": {"readOnlyHint": False, "openWorldHint": True},
    }
)


class BadScriptError(CapdError):
    """The arguments of the tool `script_run` are invalid; the text says why."""


class ScriptArguments(msgspec.Struct, frozen=True):
    """The arguments of `script_run`. `inputs` is unparsed JSON, as the model wrote it."""

    code: str = ""
    inputs: msgspec.Raw = msgspec.Raw(b"{}")


def checked_script(given: ScriptArguments) -> ScriptArguments:
    """Return `given`, the arguments of `script_run`, if they are valid.

    Raises:
        BadScriptError: the code is too long, or the inputs are not an object.
    """
    if len(given.code) > MOST_CODE:
        raise BadScriptError(f"`code` has {len(given.code):,} characters: at most {MOST_CODE:,}.")
    if len(given.inputs) > MOST_INPUT_BYTES:
        raise BadScriptError("`inputs` is larger than 1 MiB.")
    inputs = bytes(given.inputs).strip()
    if inputs in {b"null", b""}:
        inputs = b"{}"
    if not inputs.startswith(b"{"):
        raise BadScriptError('`inputs` is not an object: write {"name": value}.')
    return ScriptArguments(given.code, msgspec.Raw(inputs))
