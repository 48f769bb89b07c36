"""Starts one session on the far side of a bridge; its socket and credential are beside it.

It starts no daemon and writes no file, so removing what the bridge installed removes everything.
"""

import posix

from capd_client.shim.link import Shim


def main(folder: str) -> int:
    """Serve the host on stdin and stdout; the bridge's files are in `folder`."""
    env = {
        key.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
        for key, value in posix.environ.items()
    }
    env["CAPD_NO_START"] = "1"
    env["CAPD_IDLE_RETRY"] = "1"
    # Nowhere: what it would keep from one start to the next stays unwritten.
    env["CAPD_HOME"] = "/dev/null"
    shim = Shim(f"{folder}/socket", env)
    shim.credential_file = f"{folder}/credential"
    return shim.run()
