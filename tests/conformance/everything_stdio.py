"""The SDK's everything-server on stdin and stdout; its folder is the first argument."""

import importlib
import sys

sys.path.insert(0, sys.argv[1])
importlib.import_module("mcp_everything_server.server").mcp.run("stdio")
