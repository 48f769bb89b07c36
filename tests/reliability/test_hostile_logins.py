"""Hostile servers by URL and authorization servers, at a login and after it.

None gets a code, a token or a secret that is another's, and none stops anything but its own login.
"""

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from capd_client.control import ControlError

from .login_sites import CODE, LoginSite, led_to, visited
from .world import World, outcome, text_of, world_of_its_own

pytestmark = pytest.mark.reliability

IDLE = 600
OWN_CLIENT = 'oauth = { client_id = "own", client_secret_key = "OWN_SECRET" }'
HUGE = 10**400
"""More seconds than any float holds."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """One world for all of these tests: each has servers of its own."""
    with world_of_its_own() as made:
        made.start()
        yield made


@pytest.fixture
def evil() -> Iterator[LoginSite]:
    with LoginSite("evil") as site:
        yield site


@pytest.fixture
def honest() -> Iterator[LoginSite]:
    with LoginSite("honest") as site:
        yield site


def define(world: World, name: str, site: LoginSite, oauth: str = "") -> None:
    """Define a capability on a site; a daemon that runs reads it."""
    world.home.plain(name)
    file = world.home.folder / "tap/capabilities" / name / "default.toml"
    file.write_text(
        f"[[mcp.servers]]\nname = {json.dumps(name)}\nurl = {json.dumps(site.url)}\n"
        f'transport = "http"\n{oauth}\n'
    )
    if world.process is not None:
        world.home.ask("reload")


def begin(world: World, name: str) -> tuple[int, str]:
    """Begin a login; return its ticket and the page to open."""
    opened = world.home.ask("login", name=name)
    return opened["ticket"], opened["open"]


def end(world: World, ticket: int, address: str) -> None:
    """End a login as a browser does, at the address that the pages led to."""
    visited(address)
    world.home.ask("login_wait", ticket=ticket)


def log_in(world: World, name: str) -> None:
    ticket, page = begin(world, name)
    end(world, ticket, led_to(page))


def refusal(world: World, name: str) -> str:
    """Log in, which fails; return why."""
    with pytest.raises(ControlError) as failed:
        log_in(world, name)
    return str(failed.value)


def mix_up(evil: LoginSite, honest: LoginSite, **more: str) -> None:
    """Have the login page of `evil` lead to that of `honest`, which then knows its own person.

    `more` is added to the address where the login comes back to.
    """

    def page(query: dict[str, list[str]]) -> str:
        asked = {key: values[0] for key, values in query.items()}
        if more:
            asked["redirect_uri"] += f"?{urlencode(more)}"
        return f"{honest.base}/authorize?{urlencode(asked)}"

    evil.pages["/authorize"] = page


@pytest.mark.parametrize("how", ["other", "missing", "twice"])
def test_a_code_of_another_authorization_server_is_not_handed_over(
    world: World, evil: LoginSite, honest: LoginSite, how: str
) -> None:
    mix_up(evil, honest, **({"iss": evil.base} if how == "twice" else {}))
    honest.says_iss = how != "missing"
    evil.metadata["authorization_response_iss_parameter_supported"] = how == "missing"
    define(world, f"mixed-{how}", evil)

    with world.beside_an_honest_session():
        why = refusal(world, f"mixed-{how}")

    assert "the login failed: Authorization response" in why
    assert honest.asked("/authorize"), "the person was there"
    assert evil.asked("/token") == []
    assert CODE not in evil.heard()


def test_a_resource_that_is_another_servers_is_logged_in_at_by_nobody(
    world: World, evil: LoginSite, honest: LoginSite
) -> None:
    evil.resource = honest.resource
    define(world, "other-resource", evil)

    why = refusal(world, "other-resource")

    assert "the login failed: Protected resource" in why
    assert honest.journal == []


def test_a_code_of_one_login_is_not_taken_by_another(
    world: World, evil: LoginSite, honest: LoginSite
) -> None:
    define(world, "one-login", evil)
    define(world, "other-login", honest)
    ticket, page = begin(world, "one-login")
    other, other_page = begin(world, "other-login")
    own, stolen = led_to(page), urlsplit(led_to(other_page))

    status, _ = visited(urlsplit(own)._replace(query=stolen.query).geturl())

    assert status == 404
    end(world, ticket, own)
    end(world, other, stolen.geturl())
    assert [each.form["code"] for each in evil.asked("/token")] == [CODE]


def test_idle_connections_to_its_port_do_not_hold_a_login_up(
    world: World, honest: LoginSite
) -> None:
    define(world, "crowded", honest)
    ticket, page = begin(world, "crowded")
    at = led_to(page)
    with contextlib.ExitStack() as crowd:
        for _ in range(IDLE):
            target = (urlsplit(at).hostname, urlsplit(at).port)
            crowd.enter_context(socket.create_connection(target))

        end(world, ticket, at)

    assert len(honest.asked("/token")) == 1


def test_a_refresh_goes_where_the_login_was_whatever_the_server_says_since(
    world: World, evil: LoginSite, honest: LoginSite
) -> None:
    honest.tokens["expires_in"] = -1
    define(world, "moved", honest)
    log_in(world, "moved")
    honest.resource["authorization_servers"] = [evil.base]
    honest.metadata["token_endpoint"] = f"{evil.base}/token"

    session = world.session("moved", "moved")
    said = text_of(session.call("moved__echo"))

    assert said == "called"
    assert {each.form["grant_type"] for each in honest.asked("/token")} == {
        "authorization_code",
        "refresh_token",
    }
    assert evil.journal == []


def test_a_token_goes_to_no_other_server(world: World, evil: LoginSite, honest: LoginSite) -> None:
    define(world, "sends-on", honest)
    log_in(world, "sends-on")
    honest.redirects_calls_to = evil.url
    session = world.session("sends-on", "sends-on")

    answer = session.call("sends-on__echo")
    # The same name, at another address: as a tap or a project may define it.
    define(world, "sends-on", evil)
    world.session("another")
    enabled = world.enable("another", "sends-on")

    assert outcome(answer) == "refused"
    assert "capd login sends-on" in enabled["text"]
    assert evil.asked("/mcp")
    assert "access-honest" not in evil.heard()


def test_a_clients_secret_goes_to_no_other_authorization_server(
    evil: LoginSite, honest: LoginSite
) -> None:
    with world_of_its_own() as world:
        define(world, "own-client", honest, OWN_CLIENT)
        (world.home.folder / "config" / "secrets.env").write_text("OWN_SECRET=sesame\n")
        (world.home.folder / "config" / "secrets.env").chmod(0o600)
        world.start()
        log_in(world, "own-client")
        honest.resource["authorization_servers"] = [evil.base]

        why = refusal(world, "own-client")

        heard = list(evil.journal)
        world.home.ask("logout", name="own-client")
        log_in(world, "own-client")
        assert "capd logout own-client" in why
        assert [each.path for each in heard if "well-known" not in each.path] == []
        assert len(evil.asked("/token")) == 1, "a person who agrees can log in there"


@pytest.mark.parametrize("when", ["login", "refresh"])
def test_an_answer_over_which_the_library_fails_costs_its_own_login(
    world: World, evil: LoginSite, when: str
) -> None:
    tokens: dict[str, Any] = evil.tokens
    tokens["expires_in"] = -1 if when == "refresh" else HUGE
    define(world, f"huge-{when}", evil)
    with world.beside_an_honest_session():
        if when == "refresh":
            log_in(world, f"huge-{when}")
            session = world.session(f"huge-{when}", f"huge-{when}")
            # As an editor does: a name that was never listed would be an unknown one.
            assert f"huge_{when}__echo" in session.tools()
            tokens["expires_in"] = HUGE
            answer = session.call(f"huge_{when}__echo")
            assert outcome(answer) == "not_sent"
            assert f"capd login huge-{when}" in text_of(answer)
        else:
            # An actor that fails four times in a row ends the daemon.
            said = {refusal(world, f"huge-{when}") for _ in range(4)}
            assert all("the login failed: its metadata is not valid" in each for each in said)

    assert "crashed" not in world.log()
    assert "task_failed" not in world.log()


def test_a_login_that_cannot_be_saved_costs_itself(honest: LoginSite) -> None:
    with world_of_its_own() as world:
        define(world, "unsaved", honest)
        world.start()
        (world.home.folder / "state" / "logins").write_text("no folder")

        why = {refusal(world, "unsaved") for _ in range(4)}

        assert why == {"unsaved: the login cannot be saved (File exists)"}
        assert "crashed" not in world.log()
