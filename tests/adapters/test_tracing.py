"""When traces are recorded, and how a request's outcome is read from its answer."""

import pytest
import trio
from structlog.testing import capture_logs

from capd.adapters.tracing import Traces, failure_in, is_wanted

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_traces_are_sent_only_where_the_variables_ask_for_them(
    environment: dict[str, str], wanted: bool
) -> None:
    assert is_wanted(environment) == wanted


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}', ""),
        (b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}', "tool_error"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}', "error"),
        (b"nonsense", ""),
    ],
)
def test_an_answer_says_how_its_request_ended(line: bytes, failed: str) -> None:
    assert failure_in(line) == failed


def test_without_anybody_who_wants_them_there_are_no_spans() -> None:
    traces = Traces()

    assert (traces.is_on, traces.begin("tools/call", b'{"name":"x"}', "one")) == (False, None)


async def test_a_protocol_that_is_not_spoken_is_said_and_nothing_is_traced() -> None:
    traces = Traces()

    with capture_logs() as logs, trio.fail_after(30):
        await traces.run({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})

    assert [(log["event"], "'grpc'" in log["reason"]) for log in logs] == [("not_traced", True)]
    assert not traces.is_on
