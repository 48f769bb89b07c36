"""OpenTelemetry spans of requests, if the standard OTEL_ variables enable them.

The libraries are an extra, `capd[otel]`, and are imported only if the variables are set. A span is
a child of the span that the client names in `_meta`. `_meta` is passed on unchanged, so that the
server's own span is a child of the client's as well. No span contains an argument, a result or a
text of a user.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
import trio

from capd import __version__
from capd_protos.codec import JsonCodec, MalformedError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

TRACED = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
FLUSH_TIMEOUT = 5.0
LARGEST_LOOKED_INTO = 1 << 20
"""The most bytes of an answer that is examined for errors."""

MISSING = (
    "OTEL_ variables are set, and what sends traces is not installed: "
    "pip install 'capd[otel]', where capd is installed"
)
ONLY_HTTP = "OTEL_EXPORTER_OTLP_PROTOCOL is {!r}, and capd sends traces as http/protobuf alone"

log = structlog.get_logger(actor="tracing")


class _Context(msgspec.Struct):
    traceparent: str = ""
    tracestate: str = ""


class _Params(msgspec.Struct):
    name: str = ""
    context: _Context | None = msgspec.field(default=None, name="_meta")


class _Outcome(msgspec.Struct, rename="camel"):
    is_error: bool = False


class _Answer(msgspec.Struct):
    result: _Outcome | None = None
    error: msgspec.Raw = msgspec.Raw(b"")


_PARAMS: JsonCodec[_Params] = JsonCodec(_Params)
_ANSWER: JsonCodec[_Answer] = JsonCodec(_Answer)


class Traces:
    """The OpenTelemetry spans of one process, one for each request."""

    def __init__(self) -> None:
        self._start: Callable[..., Span] | None = None
        self.is_on = False
        """Whether spans are made and sent."""

    def begin(self, method: str, params: bytes, session: str) -> "Span | None":
        """Return a span for the request `method` of `session`; None if no span is made.

        `params` are its params as JSON, whose `_meta` may name the span above this one.
        """
        if self._start is None or method not in TRACED:
            return None
        try:
            said = _PARAMS.decode(params)
        except MalformedError:
            said = _Params()
        context = said.context or _Context()
        attributes = {"mcp.method.name": method, "session.id": session}
        if method == "tools/call" and said.name:
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": said.name}
        name = f"{method} {said.name}" if method != "resources/read" and said.name else method
        return self._start(name, attributes, context.traceparent, context.tracestate)

    def end(self, span: "Span", *, failed: str = "") -> None:
        """End a span; `failed` names the kind of failure, empty if there was none."""
        if failed:
            span.set_attribute("error.type", failed)
            span.set_status(_error_status())
        span.end()

    async def run(self, environment: Mapping[str, str]) -> None:
        """If the variables enable traces, send spans until cancelled."""
        if not is_wanted(environment):
            return
        protocol = environment.get(
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        )
        if protocol != "http/protobuf":
            log.warning("not_traced", reason=ONLY_HTTP.format(protocol))
            return
        try:
            provider = await trio.to_thread.run_sync(_provider, environment)
        except ImportError:
            log.warning("not_traced", reason=MISSING)
            return
        self._start = _starter(provider)
        self.is_on = True
        log.info("tracing")
        try:
            await trio.sleep_forever()
        finally:
            self._start = None
            self.is_on = False
            with trio.CancelScope(shield=True), trio.move_on_after(FLUSH_TIMEOUT):
                await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


TRACES = Traces()
"""The spans of this process; the variables that enable them are global too."""


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Tell whether the variables in `environment` enable traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter:
        return exporter == "otlp"
    keys = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return any(environment.get(key) for key in keys)


def failure_in(line: bytes) -> str:
    """Return the kind of failure in `line`, the answer to a request; empty if it is a result."""
    if len(line) > LARGEST_LOOKED_INTO:
        return ""
    try:
        answer = _ANSWER.decode(line)
    except MalformedError:
        return ""
    if len(answer.error):
        return "error"
    return "tool_error" if answer.result is not None and answer.result.is_error else ""


class _ToOurLog(logging.Handler):
    """Passes the libraries' log records to capd's log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a library's log record to capd's log."""
        log.warning("otel", reason=record.getMessage()[:500])


def _provider(environment: Mapping[str, str]) -> "TracerProvider":
    """Import and set up the exporter of spans, as the variables in `environment` say.

    Blocks, so run it in a thread.

    Raises:
        ImportError: the extra `otel` is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an extra
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    theirs = logging.getLogger("opentelemetry")
    theirs.addHandler(_ToOurLog())
    theirs.propagate = False
    attributes = {"service.version": __version__}
    named = "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not named and not environment.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = "capd"
    provider = TracerProvider(resource=Resource.create(attributes))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _starter(provider: "TracerProvider") -> "Callable[..., Span]":
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - an extra
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    tracer = provider.get_tracer("capd", __version__)
    propagator = TraceContextTextMapPropagator()

    def start(name: str, attributes: dict[str, Any], parent: str, state: str) -> "Span":
        carrier = {"traceparent": parent, "tracestate": state}
        context = propagator.extract({key: value for key, value in carrier.items() if value})
        return tracer.start_span(name, context, SpanKind.SERVER, attributes)

    return start


def _error_status() -> Any:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

    return Status(StatusCode.ERROR)
