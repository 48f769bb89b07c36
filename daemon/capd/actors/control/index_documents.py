"""Makes the JSON documents of control methods about the index (docs/memories.md).

Members may be added, never renamed or removed.
"""

from collections.abc import Sequence
from typing import Any

from capd_protos import index as messages
from capd_protos.types import CapabilityId

MOST_USED = 5
Document = dict[str, Any]


def metrics(described: messages.IndexDescribed) -> dict[CapabilityId, Document]:
    """Return the uses and the cost of each capability."""
    return {each.id: _metrics(each) for each in described.metrics}


def status(described: messages.IndexDescribed | None) -> Document | None:
    """Return the index's part of the status; None if the index does not answer."""
    if described is None:
        return None
    used = sorted((m for m in described.metrics if m.uses), key=lambda m: (-m.uses, str(m.id)))
    return {
        "path": described.path,
        "capabilities": described.capabilities,
        "set_by_user": described.overrides,
        "problem": described.problem,
        "most_used": [{"name": str(each.id), **_metrics(each)} for each in used[:MOST_USED]],
    }


def written(reply: messages.IndexWritten) -> Document:
    """Return the document about a write of the file capability-index.yaml."""
    return {
        "path": reply.path,
        "capabilities": reply.capabilities,
        "changed": reply.changed,
        "set_by_user": reply.kept,
        "unchanged": reply.is_same,
        "ms": reply.ms,
    }


def proposals(found: Sequence[tuple[messages.IndexEntry, messages.Revision]]) -> list[Document]:
    """Return the proposed texts for capabilities, each with the current one."""
    return [
        {
            "name": revision.name,
            "before": {"verb": entry.verb, "do": entry.do, "use_when": entry.use_when},
            "after": {
                "verb": revision.verb or entry.verb,
                "do": revision.do or entry.do,
                "use_when": revision.use_when or entry.use_when,
            },
        }
        for entry, revision in found
    ]


def _metrics(each: messages.CapabilityMetrics) -> Document:
    return {
        "uses": each.uses,
        "success_rate": round(each.successes / each.uses, 3) if each.uses else None,
        "mean_ms": round(each.mean_ms, 1) if each.uses else None,
        "tools": each.tools,
        "token_cost": each.tokens,
    }
