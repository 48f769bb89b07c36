"""Makes the JSON documents that control methods return, as docs/protocol.md defines them.

Each document has the member `schema`. Members may be added, never renamed or removed.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from capd.adapters.clients.session_environment import Stored
from capd.core.sessions.own_tools import for_person
from capd.core.tools.call_cards import call_card
from capd.core.tools.overall_ranking import Match, ranked_together
from capd_protos import curator, embedder, finder, registry, settings, supervisor
from capd_protos import ledger as messages
from capd_protos.socket import RESULT_SCHEMA
from capd_protos.tokens import SessionTokens
from capd_protos.types import CapabilityId, CapabilitySpec, SessionKey

SCHEMA = RESULT_SCHEMA

Document = dict[str, Any]
NO_METRICS: Mapping[CapabilityId, Document] = {}


def caps(
    listed: Sequence[registry.CapabilityEntry],
    sessions: Sequence[curator.SessionEntry],
    available_keys: frozenset[str],
    metrics: Mapping[CapabilityId, Document] = NO_METRICS,
) -> Document:
    """Return the document `caps`: every capability that a tap defines, usable or not.

    `available_keys` are the names of the secrets that have a value. `metrics` has the use and cost
    of capabilities.
    """
    active: dict[tuple[str, str], list[str]] = {}
    for session in sessions:
        for entry in session.active:
            active.setdefault((entry.id.tap, entry.id.name), []).append(session.key)
    return {
        "schema": SCHEMA,
        "capabilities": [
            {
                "tap": entry.tap,
                "name": entry.name,
                "provider": entry.provider,
                "routable": entry.is_routable,
                "reason": entry.reason,
                "description": entry.description,
                "domains": entry.domains,
                "triggers": entry.triggers,
                "servers": entry.servers,
                "commands": entry.commands,
                "missing": [key for key in entry.wanted_keys if key not in available_keys],
                "unpinned": entry.unpinned,
                "npm_packages": entry.npm_packages,
                "active_in": active.get((entry.tap, entry.name), []),
                "metrics": metrics.get(CapabilityId(entry.tap, entry.name)),
            }
            for entry in listed
        ],
    }


def servers(listed: Sequence[supervisor.ServerEntry]) -> Document:
    """Return the document `servers`: every instance."""
    return {"schema": SCHEMA, "servers": [_server(entry) for entry in listed]}


def sessions(listed: curator.SessionsListed) -> Document:
    """Return the document `sessions`: every session."""
    return {"schema": SCHEMA, "sessions": [_session(entry) for entry in listed.sessions]}


def status(
    daemon: Document,
    described: registry.RegistryDescribed,
    model: embedder.EmbedderDescribed | None,
    listed_sessions: curator.SessionsListed,
    listed_servers: Sequence[supervisor.ServerEntry],
) -> Document:
    """Return the document `status`: daemon, model, taps, sessions, servers and newest decisions."""
    return {
        "schema": SCHEMA,
        "daemon": daemon,
        "embedder": {
            "state": described.embedder_state,
            "reason": described.embedder_reason,
            "model": model.model if model else "",
            "revision": model.revision if model else "",
            "quantisation": model.quantisation if model else "",
            "pid": model.pid if model else 0,
            "rss_bytes": model.rss_bytes if model else 0,
            "profile": described.profile,
        },
        "taps": taps(described),
        "not_watched": described.watch,
        "sessions": [_session(entry) for entry in listed_sessions.sessions],
        "servers": [_server(entry) for entry in listed_servers],
        "decisions": [_decision(entry) for entry in described.decisions[-20:]],
        "hooks": [msgspec.to_builtins(count) for count in listed_sessions.hooks],
    }


def ledger(described: messages.LedgerDescribed | None) -> Document | None:
    """Return the ledger's part of the status; None if the ledger does not answer."""
    if described is None:
        return None
    return {
        "enabled": described.is_enabled,
        "path": described.path,
        "size_bytes": described.size_bytes,
        "rows": described.rows,
        "waiting": described.waiting,
        "dropped": described.dropped,
        "problem": described.problem,
    }


def usable(
    listed: Sequence[registry.CapabilityEntry], available_keys: frozenset[str]
) -> dict[str, int]:
    """Return for each tap how many of its capabilities are routable and have all their secrets."""
    counted: dict[str, int] = {}
    for each in listed:
        has_keys = available_keys.issuperset(each.wanted_keys)
        is_usable = each.is_routable and not each.reason and has_keys
        counted[each.tap] = counted.get(each.tap, 0) + is_usable
    return counted


def taps(described: registry.RegistryDescribed) -> list[Document]:
    """Return a document for each loaded tap."""
    return [
        {
            "name": tap.name,
            "path": tap.path,
            "revision": tap.revision,
            "routable": tap.routable,
            "unroutable": tap.unroutable,
            "findings": [msgspec.to_builtins(finding) for finding in tap.findings],
            "error": tap.error,
            "skills": tap.skills,
            "memories": tap.memories,
        }
        for tap in described.taps
    ]


def discovered(
    found: registry.CapabilitiesFound,
    skills: Sequence[finder.SkillHit],
    listed_sessions: Sequence[curator.SessionEntry],
    available_keys: frozenset[str],
) -> Document:
    """Return the document `discover`: the capabilities and skills that fit."""
    return {
        "schema": SCHEMA,
        "hits": [
            {
                "tap": hit.id.tap,
                "name": hit.id.name,
                "score": round(hit.score, 4),
                "triggers": hit.triggers,
                "missing": [key for key in hit.wanted_keys if key not in available_keys],
                "active_in": [
                    session.key
                    for session in listed_sessions
                    if any(entry.id == hit.id for entry in session.active)
                ],
            }
            for hit in found.hits
        ],
        "skills": [_found_skill(hit) for hit in skills],
    }


def _server(entry: supervisor.ServerEntry) -> Document:
    return {
        "name": entry.name,
        "identity": entry.identity,
        "instance": entry.instance,
        "scope": entry.scope,
        "project": entry.project,
        "state": entry.state,
        "pid": entry.pid,
        "leases": entry.leases,
        "tools": entry.tools,
        "restarts": entry.restarts,
        "uptime_s": round(entry.uptime, 3),
        "last_error": entry.last_error,
        "counts": entry.counts,
        "sandbox": entry.sandbox,
        "findings": entry.findings,
        "cwd": entry.cwd,
        "cwd_reason": entry.cwd_reason,
        "membership": entry.membership,
        "bridge": entry.bridge,
    }


def _session(entry: curator.SessionEntry) -> Document:
    return {
        "key": entry.key,
        "client": entry.client,
        "client_title": entry.client_title,
        "client_line": entry.client_line,
        "pid": entry.pid,
        "project": entry.project,
        "mode": entry.mode,
        "connected": entry.is_connected,
        "client_sessions": entry.client_sessions,
        "linked_by": entry.linked_by,
        "age_s": round(entry.age, 3),
        "active": [
            {
                "kind": active.kind,
                "name": active.id.name,
                "tap": active.id.tap,
                "last_used_at": active.last_used_at,
                "tools": active.tools,
            }
            for active in entry.active
        ],
        "cap": entry.cap,
        "surface": entry.surface,
        "available": entry.available,
        "index": {
            "listed": entry.index_listed,
            "left_out": entry.index_left_out,
            "tokens": entry.index_tokens,
            "suggestions_left_out": entry.suggestions_left_out,
        },
        "surface_chars": entry.surface_chars,
        "results": {
            "compacted": entry.compacted,
            "characters_in": entry.characters_in,
            "characters_out": entry.characters_out,
            "not_kept": entry.not_kept,
        },
        "tool_cap": entry.tool_cap,
        "mode_reason": entry.mode_reason,
        "unlisted": entry.unlisted,
        "parent": entry.parent,
        "bridge": entry.bridge,
        "far_project": entry.far_project,
        "calls": entry.calls,
        "tokens": entry.tokens,
        "tokens_saved": entry.tokens_saved,
        "tokens_state": entry.tokens_state,
        "memories": {
            "told": entry.memories,
            "left_out": entry.memories_left_out,
            "tokens": entry.memory_tokens,
            "budget": entry.memory_budget,
        },
    }


def _decision(entry: registry.DecisionEntry) -> Document:
    decision = entry.decision
    return {
        "session": entry.session,
        "at": entry.at,
        "outcome": decision.outcome,
        "name": decision.id.name if decision.id else "",
        "reason": decision.reason,
        "fingerprint": decision.fingerprint,
        "top": [{"name": s.id.name, "score": round(s.score, 4)} for s in decision.top],
        "suggested": [id_.name for id_ in decision.suggested],
        "left_out": decision.left_out,
        "unusable": {str(each.id.name): list(each.keys) for each in decision.unusable},
        "ms": round(entry.ms, 3),
    }


def indexed(servers: Sequence[finder.ServerIndexed]) -> Document:
    """Return the document `index`: what each server of the catalog answered."""
    return {
        "schema": SCHEMA,
        "servers": [
            {
                "name": each.name,
                "identity": each.identity,
                "tools": each.tools,
                "seconds": each.seconds,
                "error": each.error,
            }
            for each in servers
        ],
    }


def _found_skill(hit: finder.SkillHit) -> Document:
    return {
        "name": hit.prompt,
        "tap": hit.skill.tap,
        "description": hit.skill.description,
        "capabilities": list(hit.skill.capabilities),
        "score": round(hit.score, 4),
    }


def capability_match(hit: registry.CapabilityHit, spec: CapabilitySpec | None) -> Match:
    """Return a capability as an entry of a search.

    Its text is the description or title in `spec`; without one, the first trigger.
    """
    description = (spec.description or spec.title) if spec is not None else ""
    if not description and hit.triggers:
        description = f"“{hit.triggers[0]}”"
    return Match("capability", hit.id.name, hit.score, description)


def tool_match(hit: finder.ToolHit, capability: str = "") -> Match:
    """Return a tool as an entry of a search.

    `capability` is the one whose tools were searched; empty if all tools were.
    """
    named = (capability,) if capability else ()
    grants = named or ((hit.via.name,) if hit.via is not None else ())
    return Match("tool", hit.wire_name, hit.score, _purpose(hit), grants)


def found(reply: finder.ToolsFound, others: Sequence[Match], limit: int) -> Document:
    """Return the document `search`: all results in one order; tools and skills also separately.

    `others` are capabilities that fit, and the tools of the best capability.
    """
    skills = [
        Match("skill", hit.prompt, hit.score, hit.skill.description, tuple(hit.skill.capabilities))
        for hit in reply.skills
    ]
    tools = [tool_match(hit) for hit in reply.hits]
    if reply.mode == "selected":
        # A query `select:a,b` names tools; they stay in the order of the query.
        ranked = tools
    else:
        ranked = ranked_together([*others, *skills, *tools], limit)
    hits = reply.hits if reply.mode == "selected" else reply.hits[:limit]
    return {
        "schema": SCHEMA,
        "mode": reply.mode,
        "searched": reply.searched,
        "text": for_person(reply.text),
        "ranked": [
            {
                "kind": each.kind,
                "name": each.name,
                "score": round(each.score, 4),
                "description": each.description,
            }
            for each in ranked
        ],
        "hits": [
            {
                "name": hit.wire_name,
                "server": hit.server,
                "identity": hit.identity,
                "score": round(hit.score, 4),
                "definition": msgspec.Raw(hit.definition),
            }
            for hit in hits
        ],
        "skills": [_found_skill(hit) for hit in reply.skills],
    }


def _purpose(hit: finder.ToolHit) -> str:
    """Return the short description of a tool, as on its call card."""
    return call_card(hit.wire_name, hit.definition).description


def secrets(
    listed: Sequence[registry.CapabilityEntry],
    stored: Stored,
    own: Mapping[SessionKey, Collection[str]],
) -> Document:
    """Return the document `secrets`: names and where their values come from, never a value.

    `own` has the names for which each session's client sent values.
    """
    wanted_by: dict[str, list[str]] = {}
    for entry in listed:
        for key in entry.wanted_keys:
            wanted_by.setdefault(key, []).append(f"{entry.tap}/{entry.name}")
    sources = stored.sources()
    return {
        "schema": SCHEMA,
        "secrets": [
            {
                "name": key,
                "source": sources.get(key, ""),
                "sessions": [session for session, keys in own.items() if key in keys],
                "wanted_by": wanted_by.get(key, []),
            }
            for key in sorted({*wanted_by, *sources})
        ],
        "problems": stored.problems(),
        "notes": stored.notes(),
    }


def config_document(project: str, described: settings.SettingsDescribed) -> Document:
    """Return the document `config`: every key with its value and the origin of the value."""
    return {
        "schema": SCHEMA,
        "project": project,
        "values": [
            {"key": each.key, "value": msgspec.Raw(each.value), "origin": each.origin}
            for each in described.values
        ],
        "problems": described.problems,
        "project_files": {each.project: each.problems for each in described.projects},
        "needs_restart": described.needs_restart,
        "not_watched": described.watch,
    }


def tokens(described: curator.TokensDescribed) -> Document:
    """Return the document `tokens`: the tokens of each session. An unknown count is None."""
    return {
        "schema": SCHEMA,
        "vocabulary": described.vocabulary,
        "problem": described.problem,
        "sessions": [_session_tokens(each) for each in described.sessions],
    }


def _session_tokens(session: SessionTokens) -> Document:
    everything = session.everything
    return {
        "key": session.key,
        "client": session.client,
        "mode": session.mode,
        "counting": session.is_counting,
        "surface": {
            "tools": session.tools,
            "tokens": session.surface,
            "list": session.list_tokens,
            "own_tools": session.own_tokens,
            "instructions": session.instructions,
        },
        "all_tools": {
            "tools": everything.tools if everything else None,
            "tokens": everything.tokens if everything else None,
            "unlisted": everything.unlisted if everything else [],
        },
        "saved": session.saved,
        "added": {
            "tokens": session.added,
            "turns": msgspec.to_builtins(session.turns),
            "searches": msgspec.to_builtins(session.searches),
            "answers": msgspec.to_builtins(session.answers),
            "list_changes": msgspec.to_builtins(session.changes),
        },
        "net": session.net,
        "last_changes": [msgspec.to_builtins(each) for each in session.last_changes],
    }
