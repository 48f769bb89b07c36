"""Methods of `capd index`: ask servers for tools, write the index file, propose better texts."""

from collections.abc import Awaitable, Callable
from typing import Any

from capd.actors.control import documents
from capd.actors.control import index_documents as index_report
from capd.actors.control.actors import Actors, MethodError, accepted
from capd.core.index.model_texts import (
    AT_ONCE,
    SYSTEM,
    TOKENS_EACH,
    BadAnswerError,
    question,
    revisions,
)
from capd_protos import curator, finder, index
from capd_protos import socket as frames
from capd_protos.types import SessionKey

INDEX_TIMEOUT = 3600.0
WRITE_TIMEOUT = 300.0
SAMPLE_TIMEOUT = 310.0


class IndexMethods:
    """The control methods of `capd index`."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "index": self._index,
            "index_propose": self._propose,
            "index_accept": self._accept,
        }

    async def _index(self, params: frames.IndexParams) -> dict[str, Any]:
        servers: list[finder.ServerIndexed] = []
        if params.asks_servers:
            session = params.session
            if not session:
                live = (await self._actors.curator.sessions()).sessions
                session = live[0].key if len(live) == 1 else ""
            servers = await self._actors.finder.index_servers(
                SessionKey(session), params.project, timeout=INDEX_TIMEOUT
            )
        written = accepted(await self._actors.index.write(timeout=WRITE_TIMEOUT))
        return {**documents.indexed(servers), "index": index_report.written(written)}

    async def _propose(self, params: frames.ProposeParams) -> dict[str, Any]:
        listed = await self._actors.index.entries()
        found: list[tuple[index.IndexEntry, index.Revision]] = []
        by_name = {str(entry.id): entry for entry in listed.entries}
        session = params.session
        for start in range(0, len(listed.entries), AT_ONCE):
            some = listed.entries[start : start + AT_ONCE]
            request = curator.SampleText(
                SessionKey(session), question(some), SYSTEM, TOKENS_EACH * len(some)
            )
            answer = accepted(await self._actors.curator.sample(request, timeout=SAMPLE_TIMEOUT))
            try:
                revised = revisions(answer.text, some)
            except BadAnswerError as error:
                raise MethodError(frames.REFUSED, f"{error}; nothing was changed") from None
            found += [(by_name[each.name], each) for each in revised]
            session = answer.session
        return {
            "schema": documents.SCHEMA,
            "session": session,
            "asked": len(listed.entries),
            "proposals": index_report.proposals(found),
        }

    async def _accept(self, params: frames.AcceptParams) -> dict[str, Any]:
        words = [index.Revision(w.name, w.verb, w.do, w.use_when) for w in params.words]
        # The file must have an entry for each capability before its texts can be changed.
        accepted(await self._actors.index.write(timeout=WRITE_TIMEOUT))
        revised = accepted(await self._actors.index.revise(words, timeout=WRITE_TIMEOUT))
        return {"schema": documents.SCHEMA, "index": index_report.written(revised)}
