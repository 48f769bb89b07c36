"""`python -m capd daemon run`: the daemon in the foreground."""

import sys

from capd.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
