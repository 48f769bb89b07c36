"""What an answer of `tool_search` costs in tokens, on the tools that real servers list.

    python bench/search_reply.py FOLDER

FOLDER is the `tools` folder of a capd cache, as `capd index` leaves it. The first sentence of each
tool's description is one query; ranking uses words alone, no vectors. Tokens are those of a real
tokenizer (WordPiece), which counts more tokens for JSON than the tokenizers of large models do.
"""

import statistics
import sys
from pathlib import Path

import msgspec
from tokenizers import BertWordPieceTokenizer

import capd.adapters.model
from capd.adapters.tool_lists import ToolList
from capd.core.servers.identity import server_identity
from capd.core.sessions.own_tools import CAPABILITY
from capd.core.sessions.search_reply import OwnNames, QuestionAnswer, ShownHit, lay_out, reply_text
from capd.core.sessions.search_tools import TOOL_CALL
from capd.core.tools.known_tools import KnownTools
from capd.core.tools.tool_search import ToolIndex
from capd_protos.types import CapabilityId, CapabilityName, CapabilitySpec, ServerSpec, TapName

LIMITS = (3, 5, 10)


def known(folder: Path) -> KnownTools:
    tap = TapName("bench")
    capabilities, lists = [], {}
    for file in sorted(folder.glob("*.tools")):
        listed = msgspec.msgpack.decode(file.read_bytes(), type=ToolList)
        spec = ServerSpec(listed.name, "stdio", tap, command=listed.identity)
        id_ = CapabilityId(tap, CapabilityName(listed.name))
        capabilities.append(CapabilitySpec(id_, "x", servers=(spec,)))
        lists[server_identity(spec)] = listed.tools
    return KnownTools(capabilities, lists)


def main(folder: Path) -> None:
    tools = known(folder)
    index = ToolIndex(tools.tools)
    vocabulary = Path(capd.adapters.model.__file__).with_name("minilm_vocab.txt")
    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    print(f"{len(tools.tools)} tools of {index.servers} servers")
    print("detail   max  median   p90   most  schemas")
    for detail in ("", "full", "summary", "names"):
        for limit in LIMITS:
            sizes, full = [], []
            for tool in tools.tools:
                asked = tool.description.partition(". ")[0][:200] or tool.name
                hits = [
                    ShownHit(hit.tool.wire_name, tools.sources[hit.tool.wire_name].definition.json)
                    for hit in index.ranked(asked, limit).hits
                ]
                reply = lay_out(hits, detail)
                text = reply_text(
                    [QuestionAnswer(asked, reply, "")],
                    on=reply.full,
                    evicted=(),
                    skills={},
                    is_listed=False,
                    names=OwnNames(TOOL_CALL, CAPABILITY),
                )
                sizes.append(len(tokenizer.encode(text).ids))
                full.append(len(reply.full))
            quantiles = statistics.quantiles(sizes, n=10)
            print(
                f"{detail or '(none)':8} {limit:3}  {statistics.median(sizes):6.0f} "
                f"{quantiles[8]:5.0f} {max(sizes):6}  {statistics.mean(full):.1f}"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
