"""How a definition names a service of a cluster, and the command that connects to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.kubernetes import ClusterService, forwarded_port, is_place, place, place_of


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("team/github", ClusterService("team", "github", "http", "/mcp")),
        ("team/github:8080", ClusterService("team", "github", "8080", "/mcp")),
        ("team/github:mcp-port/", ClusterService("team", "github", "mcp-port", "/")),
        ("a/b/sse?x=1", ClusterService("a", "b", "http", "/sse?x=1")),
    ],
)
def test_a_place_is_read_and_kept_as_a_url(text: str, right: ClusterService) -> None:
    got = place(text)

    assert got == right
    assert is_place(got.url)
    assert place_of(got.url) == right


@pytest.mark.parametrize(
    "text",
    [
        *("", "github", "team/", "/github", "Team/github", "team/-x", "team/x-", "a//b"),
        *("a/b:0", "a/b:65536", "a/b:", "a/b:-x", f"a/{'b' * 64}", "a/b /mcp", "a/b\n"),
        *("--kubeconfig=x/b", "a/--all"),
    ],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`kubernetes`"):
        place(text)


@given(st.text(max_size=30) | st.from_regex(r"[a-z/:.-]{1,20}"))
def test_no_text_becomes_another_option_of_kubectl(text: str) -> None:
    try:
        command = place(text).command
    except ValueError:
        return

    assert command[:3] == ("kubectl", "port-forward", "--address=127.0.0.1")
    assert command[3].startswith("--namespace=")
    assert command[4].startswith("service/")
    assert command[5].startswith(":")
    assert len(command) == 6


@pytest.mark.parametrize(
    ("line", "port"),
    [
        (b"Forwarding from 127.0.0.1:41233 -> 8080", 41233),
        (b"Forwarding from [::1]:41233 -> 8080", None),
        (b"Handling connection for 41233", None),
        (b"", None),
        (b"x Forwarding from 127.0.0.1:41233 -> 8080", None),
    ],
)
def test_the_port_is_that_which_kubectl_reports(line: bytes, port: int | None) -> None:
    assert forwarded_port(line) == port


def test_the_url_of_the_forwarded_port_has_the_path() -> None:
    assert place("a/b:9/x").local_url(41233) == "http://127.0.0.1:41233/x"
