"""Which capability a name refers to, and the error if there is none."""

from dataclasses import replace

import msgspec
import pytest

from capd.core.servers.identity import server_identity
from capd.core.taps.catalog import Catalog, Tap, Unknown
from capd.core.taps.tap_format import CapabilityRead
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Finding,
    ServerName,
    ServerSpec,
    TapName,
    ToolDefinition,
    ToolName,
)


def spec(tap: str, name: str, *keys: str) -> CapabilitySpec:
    id_ = CapabilityId(TapName(tap), CapabilityName(name))
    return CapabilitySpec(id_, "default", wanted_keys=keys)


def tap(name: str, *specs: CapabilitySpec, unroutable: tuple[str, ...] = ()) -> Tap:
    good = [CapabilityRead(s.id.name, s, "", ()) for s in specs]
    found = Finding("capabilities/x", 0, "bad")
    bad = [CapabilityRead(CapabilityName(n), None, "no config.toml", (found,)) for n in unroutable]
    return Tap(TapName(name), f"/taps/{name}", "0" * 12, (*good, *bad), {})


MINE = tap(
    "me/mine",
    spec("me/mine", "git", "B"),
    spec("me/mine", "database-sqlite"),
    unroutable=("voice",),
)
STARTER = tap("starter", spec("starter", "git", "C"), spec("starter", "github", "A", "B"))
CATALOG = Catalog([MINE, STARTER])


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("git", "me/mine/git"),
        (" git\n", "me/mine/git"),
        ("github", "starter/github"),
        ("starter/git", "starter/git"),
        ("me/mine/git", "me/mine/git"),
        ("GIT", "me/mine/git"),
        ("Database SQLite", "me/mine/database-sqlite"),
        ("data", "me/mine/database-sqlite"),
        ("gith", "starter/github"),
        ("STARTER/git", "starter/git"),
        ("Me/Mine/Git", "me/mine/git"),
        ("start/gith", "starter/github"),
    ],
)
def test_a_name_means_the_first_tap_that_has_it_or_the_one_it_is_pinned_to(
    name: str, found: str
) -> None:
    got = CATALOG.find(name)

    assert isinstance(got, CapabilitySpec)
    assert str(got.id) == found


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gti", Unknown("no tap has a capability 'gti'", ("git",))),
        (
            "gi",
            Unknown("no tap has a capability 'gi', and several fit", ("git", "github")),
        ),
        ("zzz", Unknown("no tap has a capability 'zzz'")),
        ("", Unknown("no tap has a capability ''")),
        ("voice", Unknown("me/mine has 'voice', but with no config.toml")),
        ("me/mine/voice", Unknown("me/mine has 'voice', but with no config.toml")),
        ("startr/git", Unknown("no tap 'startr'", ("starter",))),
        ("starter/githb", Unknown("tap 'starter' has no capability 'githb'", ("github", "git"))),
        ("starter/database-sqlite", Unknown("tap 'starter' has no capability 'database-sqlite'")),
        ("/git", Unknown("no tap ''")),
    ],
)
def test_a_name_that_means_nothing_is_answered_with_the_reason_and_near_names(
    name: str, why: Unknown
) -> None:
    got = CATALOG.find(name)

    assert got == why


def test_each_name_has_one_winner_and_keys_come_from_every_definition() -> None:
    got = ([str(winner.id) for winner in CATALOG.winners], CATALOG.wanted_keys)

    assert got == (
        ["me/mine/git", "me/mine/database-sqlite", "starter/github"],
        ("A", "B", "C"),
    )


def test_a_name_bound_to_a_tap_that_lacks_the_provider_falls_through_to_no_other() -> None:
    reason = "no npx.toml: taps.toml asks for it, and tap me lacks it"
    bound = CapabilityRead(CapabilityName("git"), None, reason, (), is_binding=True)
    mine = Tap(TapName("me"), "/taps/me", "0" * 12, (bound,), {})
    catalog = Catalog([mine, STARTER])

    got = (catalog.find("git"), [c.id.name for c in catalog.winners])

    assert got == (Unknown(f"me has 'git', but with {reason}"), ["github"])
    assert catalog.find("starter/git") == spec("starter", "git", "C")


def test_a_capability_leads_back_to_its_tap() -> None:
    got = [CATALOG.tap_of(spec(name, "git").id) for name in ("starter", "other")]

    assert got == [STARTER, None]


def test_a_tap_tells_what_it_has_and_what_is_wrong_with_it() -> None:
    got = ([c.id.name for c in MINE.capabilities], MINE.unroutable, MINE.findings)

    assert got == (
        ["git", "database-sqlite"],
        {"voice": "no config.toml"},
        (Finding("capabilities/x", 0, "bad"),),
    )


def bank(tap_name: str, command: str) -> ServerSpec:
    return ServerSpec(ServerName("bank"), "stdio", TapName(tap_name), command=command)


def serving(tap_name: str, command: str, said: str = "") -> Tap:
    """A tap with one server, which lists the tool `said` in `tools.json`."""
    server = bank(tap_name, command)
    capability = msgspec.structs.replace(spec(tap_name, "bank"), servers=(server,))
    lists = {BANK: [ToolDefinition(ToolName(said), b"{}")]} if said else {}
    return replace(tap(tap_name, capability), tool_lists=lists)


BANK = server_identity(bank("any", "bank"))


@pytest.mark.parametrize(
    ("taps", "said"),
    [
        ([serving("mine", "bank", "pay")], "pay"),
        ([serving("mine", "bank"), serving("evil", "other", "forged")], ""),
        ([serving("evil", "other", "forged"), serving("mine", "bank", "pay")], "pay"),
        ([serving("mine", "bank"), serving("evil", "bank", "forged")], ""),
        ([serving("mine", "bank", "pay"), serving("evil", "bank", "forged")], "pay"),
        ([serving("mine", "bank"), serving("starter", "bank", "shipped")], "shipped"),
    ],
)
def test_a_tap_says_nothing_of_the_servers_of_another(taps: list[Tap], said: str) -> None:
    lists = Catalog(taps).tool_lists(TapName("starter"))

    assert [each.name for each in lists.get(BANK, [])] == ([said] if said else [])
