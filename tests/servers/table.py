"""The ordinary servers: which, how they are started, what they are asked, what varies and why.

docs/servers.md shows these rows to people.
"""

from .conversation import Call, Mask, Prompt, Read, Relist, Server

PROJECT = "{{PROJECT}}"
WEB = "{{WEB}}"
"""The project's files by HTTP on loopback."""


def npx(package: str, *arguments: str) -> tuple[str, ...]:
    return ("npx", "-y", package, *arguments)


def uvx(package: str, *arguments: str) -> tuple[str, ...]:
    return ("uvx", package, *arguments)


_REPOSITORY = {"repo_path": f"{PROJECT}/repository"}

_FILES = Server(
    "files",
    "@modelcontextprotocol/server-filesystem 2026.8.31",
    npx("@modelcontextprotocol/server-filesystem@2026.8.31", PROJECT),
    14,
    (
        Call("list_allowed_directories", {}),
        Call("list_directory_with_sizes", {"path": PROJECT}),
        Call("directory_tree", {"path": f"{PROJECT}/sub"}),
        Call("read_text_file", {"path": f"{PROJECT}/notes.txt"}),
        Call("read_text_file", {"path": f"{PROJECT}/long.txt"}),
        Call("read_media_file", {"path": f"{PROJECT}/pixel.png"}),
        Call("read_multiple_files", {"paths": [f"{PROJECT}/notes.txt", f"{PROJECT}/gone"]}),
        Call("write_file", {"path": f"{PROJECT}/fresh.txt", "content": "fresh — 🛶\n"}),
        Call(
            "edit_file",
            {
                "path": f"{PROJECT}/fresh.txt",
                "edits": [{"oldText": "fresh", "newText": "painted"}],
            },
        ),
        Call("move_file", {"source": f"{PROJECT}/fresh.txt", "destination": f"{PROJECT}/sub/f"}),
        Call("search_files", {"path": PROJECT, "pattern": "**/*.md"}),
        Call("get_file_info", {"path": f"{PROJECT}/notes.txt"}),
        Call("read_text_file", {"path": "/etc/hostname"}),
        Call("read_text_file", {"path": 7}),
        Call("read_text_file"),
    ),
    masks=(
        Mask(
            r"(created|modified|accessed): [^\\]*",
            "times of files, because each run creates its files anew",
        ),
        Mask(r"(created|modified|accessed)\":\"[^\"]*", "times of files, in structured content"),
    ),
)

_MEMORY = Server(
    "memory",
    "@modelcontextprotocol/server-memory 2026.8.31",
    npx("@modelcontextprotocol/server-memory@2026.8.31"),
    9,
    (
        Call(
            "create_entities",
            {
                "entities": [
                    {"name": "Heron", "entityType": "boat", "observations": ["is blue"]},
                    {"name": "Ada", "entityType": "person", "observations": []},
                ]
            },
        ),
        Call(
            "create_relations",
            {"relations": [{"from": "Ada", "to": "Heron", "relationType": "sails"}]},
        ),
        Call(
            "add_observations",
            {"observations": [{"entityName": "Heron", "contents": ["leaks"]}]},
        ),
        Call("search_nodes", {"query": "leaks"}),
        Call("read_graph", {}),
        Call("add_observations", {"observations": [{"entityName": "gone", "contents": ["x"]}]}),
        Call("create_entities", {"entities": "none"}),
        Read("memory://knowledge-graph"),
        Read("memory://gone"),
    ),
    env={"MEMORY_FILE_PATH": f"{PROJECT}/graph.jsonl"},
)

_THOUGHT = {"thought": "count the boats", "thoughtNumber": 1, "totalThoughts": 2}
_THINKING = Server(
    "thinking",
    "@modelcontextprotocol/server-sequential-thinking 2026.8.31",
    npx("@modelcontextprotocol/server-sequential-thinking@2026.8.31"),
    1,
    (
        Call("sequentialthinking", {**_THOUGHT, "nextThoughtNeeded": True}),
        Call("sequentialthinking", {**_THOUGHT, "thoughtNumber": 2, "nextThoughtNeeded": False}),
        Call("sequentialthinking", {"thought": "no number"}),
    ),
)

_PLAYWRIGHT = Server(
    "playwright",
    "@playwright/mcp 0.0.83",
    npx("@playwright/mcp@0.0.83", "--headless", "--isolated", "--output-dir", f"{PROJECT}/out"),
    25,
    (
        Call("browser_navigate", {"url": "data:text/html,<h1>Harbour</h1>"}),
        Call("browser_snapshot", {}),
        Call("browser_tabs", {"action": "list"}),
        Call("browser_resize", {"width": "wide"}),
        Call("browser_close", {}),
    ),
)

_DEVTOOLS = Server(
    "devtools",
    "chrome-devtools-mcp 1.11.0",
    npx("chrome-devtools-mcp@1.11.0", "--headless", "--isolated"),
    32,
    (Call("list_pages", {}), Call("click", {"pageId": "none"}), Call("new_page", {})),
)

_CONTEXT7 = Server(
    "context7",
    "@upstash/context7-mcp 4.1.1",
    npx("@upstash/context7-mcp@4.1.1"),
    2,
    (Call("resolve-library-id", {"query": 7}), Call("query-docs", {})),
    is_modern=True,
)

_COMMANDS = Server(
    "commands",
    "mcp-server-commands 0.5.0",
    npx("mcp-server-commands@0.5.0"),
    1,
    (
        Call("run_command", {"command": "cat notes.txt"}),
        Call("run_command", {"command": "cat", "stdin": "by standard input"}),
        Call("run_command", {"command": "echo lost >&2; exit 3"}),
        Call("run_command", {"command": "pwd", "workdir": f"{PROJECT}/sub"}),
        Call("run_command", {}),
        Prompt("run_command", {"command": "echo in a prompt"}),
    ),
    speaks="2024-11-05",
)

_ESLINT = Server(
    "eslint",
    "@eslint/mcp 0.3.13",
    npx("@eslint/mcp@0.3.13"),
    1,
    (
        Call("lint-files", {"filePaths": [f"{PROJECT}/boats.js"]}),
        Call("lint-files", {"filePaths": [f"{PROJECT}/gone.js"]}),
        Call("lint-files", {"filePaths": "boats.js"}),
    ),
)

_OBSIDIAN = Server(
    "obsidian",
    "mcp-obsidian 1.0.0",
    npx("mcp-obsidian@1.0.0", PROJECT),
    2,
    (
        Call("search_notes", {"query": "todo"}),
        Call("read_notes", {"paths": ["sub/todo.md"]}),
        Call("read_notes", {"paths": ["gone.md"]}),
        Call("read_notes", {"paths": 7}),
    ),
    speaks="2024-11-05",
)

_PDF = Server(
    "pdf",
    "@modelcontextprotocol/server-pdf 2.0.4",
    npx("@modelcontextprotocol/server-pdf@2.0.4", "--stdio", f"{PROJECT}/one.pdf"),
    9,
    (
        Call("list_pdfs", {}),
        Call("read_pdf_bytes", {"url": f"{PROJECT}/one.pdf", "offset": 0, "byteCount": 900}),
        Call("read_pdf_bytes", {"url": f"{PROJECT}/gone.pdf"}),
        Call("display_pdf", {"url": f"{PROJECT}/gone.pdf"}),
        Call("interact", {}),
        Read("ui://pdf-viewer/mcp-app.html"),
    ),
)

_GIT = Server(
    "git",
    "mcp-server-git 2026.10.19",
    uvx("mcp-server-git==2026.10.19"),
    12,
    (
        Call("git_status", _REPOSITORY),
        Call("git_log", {**_REPOSITORY, "max_count": 2}),
        Call("git_diff_unstaged", _REPOSITORY),
        Call("git_show", {**_REPOSITORY, "revision": "HEAD"}),
        Call("git_add", {**_REPOSITORY, "files": ["boats.txt"]}),
        Call("git_diff_staged", _REPOSITORY),
        Call("git_create_branch", {**_REPOSITORY, "branch_name": "harbour"}),
        Call("git_branch", {**_REPOSITORY, "branch_type": "local"}),
        Call("git_commit", {**_REPOSITORY, "message": "more boats"}),
        Call("git_show", {**_REPOSITORY, "revision": "gone"}),
        Call("git_status", {"repo_path": f"{PROJECT}/sub"}),
        Call("git_log", {}),
    ),
    masks=(
        Mask(
            r"with hash [0-9a-f]{40}",
            "hashes of commits, because they depend on the time of the commit",
        ),
    ),
    is_modern=True,
)

_TIME = Server(
    "time",
    "mcp-server-time 2026.10.19",
    uvx("mcp-server-time==2026.10.19"),
    2,
    (
        Call("get_current_time", {"timezone": "Europe/Warsaw"}),
        Call(
            "convert_time",
            {
                "source_timezone": "Europe/Warsaw",
                "time": "16:30",
                "target_timezone": "Asia/Kathmandu",
            },
        ),
        Call("get_current_time", {"timezone": "Europe/Nowhere"}),
        Call("get_current_time", {}),
    ),
    masks=(Mask(r"T\d\d:\d\d:\d\d(?=[+-])", "the time of day"),),
    is_modern=True,
)

_FETCH = Server(
    "fetch",
    "mcp-server-fetch 2026.10.24",
    uvx("mcp-server-fetch==2026.10.24", "--allow-private-ips"),
    1,
    (
        Call("fetch", {"url": f"{WEB}/page.html"}),
        Call("fetch", {"url": f"{WEB}/long.txt", "max_length": 100, "raw": True}),
        Call("fetch", {"url": f"{WEB}/gone.html"}),
        Call("fetch", {"url": "no address"}),
        Prompt("fetch", {"url": f"{WEB}/page.html"}),
        Prompt("fetch"),
    ),
    is_modern=True,
)

_SQLITE = Server(
    "sqlite",
    "mcp-server-sqlite 2025.4.25",
    ("uvx", "--with", "mcp<2", "mcp-server-sqlite==2025.4.25", "--db-path", f"{PROJECT}/boats.db"),
    6,
    (
        Call("list_tables", {}),
        Call("describe_table", {"table_name": "boats"}),
        Call("read_query", {"query": "select * from boats order by name"}),
        Call("write_query", {"query": "insert into boats values ('Gull', 3)"}),
        Call("create_table", {"query": "create table berths (number integer)"}),
        Call("append_insight", {"insight": "two boats had a berth"}),
        Call("read_query", {"query": "drop table boats"}),
        Call("read_query", {"query": "select * from gone"}),
        Call("read_query", {}),
        Read("memo://insights"),
        Read("memo://gone"),
        Prompt("mcp-demo", {"topic": "boats"}),
    ),
)

_FASTMCP_SQLITE = Server(
    "fastmcp-sqlite",
    "fastmcp-sqlite 1.0.0",
    ("uvx", "--with", "mcp==2.3.0", "fastmcp-sqlite==1.0.0", "--allowed-dir", PROJECT),
    6,
    (
        Call("list_databases", {"directory": PROJECT}),
        Call("schema", {"db": f"{PROJECT}/boats.db"}),
        Call("query", {"sql": "select * from boats", "db": f"{PROJECT}/boats.db"}),
        Call("query", {"sql": "delete from boats", "db": f"{PROJECT}/boats.db"}),
        Call("query", {"sql": "select 1", "db": "/etc/gone.db"}),
        Call("query", {}),
    ),
    masks=(Mask(r"[\d.]+ ms", "how long the query took"),),
    is_modern=True,
)

_DUCKDB = Server(
    "duckdb",
    "mcp-server-motherduck 1.1.0",
    uvx("mcp-server-motherduck==1.1.0", "--db-path", ":memory:", "--read-write"),
    4,
    (
        Call("execute_query", {"sql": "create table boats as select 'Heron' as name, 1 as berth"}),
        Call("execute_query", {"sql": "select name, berth, 0.1 + 0.2 as sum from boats"}),
        Call("list_tables", {}),
        Call("list_columns", {"table": "boats"}),
        Call("execute_query", {"sql": "select * from gone"}),
        Call("execute_query", {}),
    ),
    is_modern=True,
)

_CALCULATOR = Server(
    "calculator",
    "mcp-server-calculator 0.2.1",
    uvx("mcp-server-calculator==0.2.1"),
    1,
    (
        Call("calculate", {"expression": "2 * (3 + 4) / 7"}),
        Call("calculate", {"expression": "sqrt(2)"}),
        Call("calculate", {"expression": "1 / 0"}),
        Call("calculate", {"expression": "import os"}),
        Call("calculate", {}),
    ),
)

_MARKITDOWN = Server(
    "markitdown",
    "markitdown-mcp 0.0.1a7",
    uvx("markitdown-mcp==0.0.1a7"),
    1,
    (
        Call("convert_to_markdown", {"uri": f"file://{PROJECT}/page.html"}),
        Call("convert_to_markdown", {"uri": f"file://{PROJECT}/boats.csv"}),
        Call("convert_to_markdown", {"uri": f"file://{PROJECT}/one.pdf"}),
        Call("convert_to_markdown", {"uri": f"file://{PROJECT}/gone.html"}),
        Call("convert_to_markdown", {"uri": "gopher://nowhere"}),
        Call("convert_to_markdown", {}),
    ),
    is_modern=True,
)

_BOOK = {"path": f"{PROJECT}/boats.xlsx"}
_EXCEL = Server(
    "excel",
    "excel-mcp-server 2.2.2",
    uvx("excel-mcp-server==2.2.2", "stdio"),
    46,
    (
        Call("create_workbook", {**_BOOK, "sheets": ["Boats"]}),
        Call(
            "write_range",
            {**_BOOK, "sheet": "Boats", "at": "A1", "rows": [["name", "berth"], ["Heron", 1]]},
        ),
        Call("read_range", {**_BOOK, "sheet": "Boats"}),
        Call("find_cells", {**_BOOK, "query": "Heron"}),
        Call("describe_workbook", _BOOK),
        Call("read_range", {**_BOOK, "sheet": "gone"}),
        Call("read_range", {"path": f"{PROJECT}/gone.xlsx", "sheet": "Boats"}),
        Call("read_range", {}),
    ),
    is_modern=True,
)

_LETTER = {"filename": f"{PROJECT}/letter.docx"}
_WORD = Server(
    "word",
    "office-word-mcp-server 1.1.11",
    ("uvx", "--from", "office-word-mcp-server==1.1.11", "word_mcp_server"),
    54,
    (
        Call("create_document", {**_LETTER, "title": "Harbour", "author": "Ada"}),
        Call("add_heading", {**_LETTER, "text": "Boats", "level": 1}),
        Call("add_paragraph", {**_LETTER, "text": "Three boats — 🛶 — today."}),
        Call("get_document_text", _LETTER),
        Call("get_document_outline", _LETTER),
        Call("get_document_text", {"filename": f"{PROJECT}/gone.docx"}),
        Call("get_document_text", {}),
    ),
    is_modern=True,
)

_TREE = {"project": "boats"}
_TREE_SITTER = Server(
    "tree-sitter",
    "mcp-server-tree-sitter 0.7.0",
    ("uvx", "--with", "mcp<2", "mcp-server-tree-sitter==0.7.0"),
    26,
    (
        Call("register_project_tool", {"path": PROJECT, "name": "boats"}),
        Call("list_files", {**_TREE, "pattern": "*.py"}),
        Call("find_text", {**_TREE, "pattern": "harbour", "file_pattern": "**/*.md"}),
        Call("get_file", {**_TREE, "path": "boats.py"}),
        Call("list_languages", {}),
        Call("get_file", {**_TREE, "path": "gone.py"}),
        Call("get_file", {"project": "gone", "path": "boats.py"}),
        Call("get_file", {}),
        Prompt("code_review", {"project": "boats", "file_path": "boats.py"}),
    ),
    masks=(Mask(r"last_scan_time\W+\d+", "the time at which the folder was scanned"),),
)

_SHELL = Server(
    "shell",
    "mcp-shell-server 1.1.14",
    uvx("mcp-shell-server==1.1.14"),
    1,
    (
        Call("shell_execute", {"command": ["cat", "notes.txt"], "directory": PROJECT}),
        Call("shell_execute", {"command": ["cat"], "stdin": "given", "directory": PROJECT}),
        Call("shell_execute", {"command": ["cat", "gone"], "directory": PROJECT}),
        Call("shell_execute", {"command": ["rm", "notes.txt"], "directory": PROJECT}),
        Call("shell_execute", {}),
    ),
    env={"ALLOW_COMMANDS": "cat"},
)

_ARXIV = Server(
    "arxiv",
    "arxiv-mcp-server 0.8.2",
    uvx("arxiv-mcp-server==0.8.2", "--storage-path", f"{PROJECT}/papers"),
    19,
    (
        Call("list_papers", {}),
        Call("list_watches", {}),
        Call("watch_topic", {"topic": "boats", "max_results": 2}),
        Call("unwatch_topic", {"topic": "boats"}),
        Call("read_paper", {"paper_id": "no-such-paper"}),
        Call("read_paper", {}),
        Prompt("research-discovery", {"topic": "boats"}),
        Prompt("research-discovery"),
    ),
    masks=(
        Mask(
            r"(created_at|last_checked|updated_at)\W+[\d:.T+-]+",
            "the time at which the watch was created",
        ),
    ),
)

_WIKIPEDIA = Server(
    "wikipedia",
    "wikipedia-mcp 2.0.1",
    uvx("wikipedia-mcp==2.0.1"),
    22,
    (
        Call("search_wikipedia", {"query": "", "limit": 1}),
        Call("search_wikipedia", {}),
        Call("get_summary", {"title": 7}),
    ),
    is_modern=True,
)

_DUCKDUCKGO = Server(
    "duckduckgo",
    "duckduckgo-mcp-server 0.7.0",
    uvx("duckduckgo-mcp-server==0.7.0"),
    3,
    (
        Call("fetch_content", {"url": f"{WEB}/page.html"}),
        Call("expand_link", {"token": "gone"}),
        Call("search", {}),
    ),
    env={"DDG_ALLOW_PRIVATE_URLS": "1"},
    is_modern=True,
)

_FASTMCP = Server(
    "fastmcp",
    "fastmcp 4.1.2",
    uvx("fastmcp==4.1.2", "run", "--no-banner", f"{PROJECT}/harbour_server.py"),
    2,
    (
        Call("open_berth", {"number": 1}),
        Relist(3),
        Call("berth_1", {"boat": "Heron"}),
        Call("close_berth", {"number": 1}),
        Relist(2),
        Call("close_berth", {"number": 9}),
        Call("open_berth", {}),
    ),
    is_modern=True,
)

SERVERS = (
    _FILES,
    _MEMORY,
    _THINKING,
    _PLAYWRIGHT,
    _DEVTOOLS,
    _CONTEXT7,
    _COMMANDS,
    _ESLINT,
    _OBSIDIAN,
    _PDF,
    _GIT,
    _TIME,
    _FETCH,
    _SQLITE,
    _FASTMCP_SQLITE,
    _DUCKDB,
    _CALCULATOR,
    _MARKITDOWN,
    _EXCEL,
    _WORD,
    _TREE_SITTER,
    _SHELL,
    _ARXIV,
    _WIKIPEDIA,
    _DUCKDUCKGO,
    _FASTMCP,
)
