"""A session's domain is that of the nearest folder, else of its client, else none."""

import pytest

from capd.core.sessions.domains import Domains, is_inside

DOMAINS = Domains(
    clients={"zed": "developer", "obsidian": "writer"},
    projects={"/src": "devops", "/src/app": "security", "/src/app/docs": ""},
)


@pytest.mark.parametrize(
    ("client", "project", "expected"),
    [
        pytest.param("zed", "/home/me", "developer", id="the client's"),
        pytest.param("zed", "/src/lib/deep", "devops", id="a folder around it"),
        pytest.param("zed", "/src/app", "security", id="the nearest folder"),
        pytest.param("zed", "/src/apples", "devops", id="a name that begins alike"),
        pytest.param("zed", "/src/app/docs", "developer", id="a folder that says nothing"),
        pytest.param("zed", "", "developer", id="no project"),
        pytest.param("other", "/home/me", "", id="nobody says any"),
    ],
)
def test_the_nearest_folder_counts_then_the_client(
    client: str, project: str, expected: str
) -> None:
    assert DOMAINS.of(client, project) == expected


@pytest.mark.parametrize(
    ("domain", "domains", "expected"),
    [("", ("a",), True), ("a", (), True), ("a", ("b", "a"), True), ("a", ("b",), False)],
)
def test_whoever_names_no_domain_is_not_filtered(
    domain: str, domains: tuple[str, ...], expected: bool
) -> None:
    assert is_inside(domain, domains) is expected
