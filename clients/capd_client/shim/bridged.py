"""Starts the shim on the far side of a bridge.

It starts no daemon and writes no file, so deleting the folder that the bridge installed leaves
nothing behind.
"""

import posix

from capd_client.shim.link import Shim


def main(folder: str) -> int:
    """Serve the host on stdin and stdout; `folder` has the bridge's socket and credential."""
    env = {
        key.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
        for key, value in posix.environ.items()
    }
    env["CAPD_NO_START"] = "1"
    env["CAPD_IDLE_RETRY"] = "1"
    # A folder that cannot exist, so that saved answers to handshakes are not written.
    env["CAPD_HOME"] = "/dev/null"
    shim = Shim(f"{folder}/socket", env)
    shim.credential_file = f"{folder}/credential"
    return shim.run()
