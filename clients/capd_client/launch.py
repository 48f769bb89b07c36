"""Starts the shim from its cached bytecode: `python -I -S launch.py [SOCKET]`.

A script is compiled each time it is run, and compiling the shim takes 5 ms and 3 MiB.
"""

import sys

sys.path.append(__file__.rpartition("/")[0].rpartition("/")[0])

from capd_client.shim import main

sys.exit(main(sys.argv[1:]))
