"""Starts the shim from its cached bytecode: `python -I -S launch.py [SOCKET]`.

The shim is the small process that passes messages between an editor and the daemon.

Python compiles a script at each run, but caches the bytecode of modules. So this script is short.
"""

import sys

sys.path.append(__file__.rpartition("/")[0].rpartition("/")[0])

from capd_client.shim.main import main

sys.exit(main(sys.argv[1:]))
