"""The result of a turn as a JSON document, for prompt hooks and the control method `turn`.

A turn begins with a message of the user, for which capd chooses capabilities and tools.
"""

from typing import Any

import msgspec

from capd.core.sessions.hook_context import join_texts
from capd_protos import curator
from capd_protos.socket import RESULT_SCHEMA


def turn_words(taken: curator.TurnTaken) -> str:
    """Return all texts of a turn for the model, joined into one."""
    return join_texts(taken.index, taken.bootstrap, taken.context, taken.suggestion, taken.memories)


def turn_document(taken: curator.TurnTaken) -> dict[str, Any]:
    """Return the document `turn`: the decision, the changes, and the texts for the model."""
    decision = taken.decision
    return {
        "schema": RESULT_SCHEMA,
        "session": taken.session,
        "outcome": decision.outcome,
        "name": decision.id.name if decision.id else "",
        "reason": decision.reason,
        "top": [{"name": s.id.name, "score": round(s.score, 4)} for s in decision.top],
        "suggested": [id_.name for id_ in decision.suggested],
        "unusable": [
            {
                "name": each.id.name,
                "reason": each.reason,
                "keys": list(each.keys),
                "programs": list(each.programs),
            }
            for each in decision.unusable
        ],
        "suggestion": taken.suggestion,
        "tools": taken.tools,
        "changed": {"added": taken.added, "removed": taken.removed},
        "context": turn_words(taken),
        "ms": taken.ms,
        "problem": taken.problem,
        "memories": taken.memories,
        "left_out": msgspec.to_builtins(taken.left_out),
        "budgeted": taken.budgeted,
        "notice": taken.notice,
        "held": taken.is_held,
    }
