"""Turns the configuration into the rules and limits of sessions."""

from collections.abc import Mapping

from capd.adapters.configuration import Configuration, RulesTable
from capd.core.results.limits import Limits
from capd.core.sessions.client_traits import ClientTraits
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd.core.tools.curation import CurationRules


def session_rules(configuration: Configuration, table: Mapping[str, ClientTraits]) -> SessionRules:
    """Return the settings of sessions in the form that the core uses.

    `table` is the table of clients, which says what each of them can do.
    """
    sessions, surface, policy = (
        configuration.sessions,
        configuration.surface,
        configuration.policy,
    )
    return SessionRules(
        cap=sessions.capabilities,
        tool_cap=sessions.tools,
        mode=surface.mode,
        pins=surface.pins,
        share=surface.pass_through,
        checks_arguments=surface.check_arguments,
        unchecked=surface.unchecked_servers,
        shows_notices=surface.notices,
        everyone=_rules("[policy]", policy),
        clients=_named("clients", policy.clients),
        projects=_named("projects", policy.projects),
        ask_timeout=policy.ask_timeout,
        table=table,
        routing=configuration.routing_switch(),
        learns=configuration.routing.learn,
        curation=CurationRules(
            configuration.curation.kind,
            configuration.curation.k,
            configuration.curation.new_per_turn,
            configuration.curation.scorer,
        ),
        memory_tokens=configuration.memories.tokens,
        bootstrap=configuration.bootstrap.rules(),
        bootstrapped=configuration.bootstrap_switch(),
        has_scripts=configuration.scripts.enabled,
        lists_scripts=configuration.scripts.listed,
    )


def result_limits(configuration: Configuration) -> Limits:
    """Return the configured limits above which results of tools are shortened."""
    table = configuration.results
    return Limits(table.limit, table.servers, table.tools, table.media)


def _named(kind: str, tables: Mapping[str, RulesTable]) -> tuple[tuple[str, PolicyRules], ...]:
    return tuple(
        (name, _rules(f'[policy.{kind}."{name}"]', table)) for name, table in tables.items()
    )


def _rules(place: str, table: RulesTable) -> PolicyRules:
    return PolicyRules(place, table.allow, table.deny, table.ask)
