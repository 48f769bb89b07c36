"""Programs that tests start."""

from pathlib import Path

HOSTILE_SERVER = Path(__file__).parent / "hostile_server.py"
"""An MCP server that misbehaves as its `--mode` says."""
