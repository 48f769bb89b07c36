"""Where secrets are stored, for `capd secret` and for the daemon.

docs/secrets.md has the order in which the sources are searched. No message carries a value.
"""

import re

KEYRING_SERVICE = "capd"
"""The service name of capd's entries in the keyring. An entry's user name is the secret's key."""
WORST_KEYRING = 1
"""The lowest priority (`keyring` package) of a usable backend. Backends below it always fail, store
nothing, or store secrets unencrypted."""
FILE_NAME = "secrets.env"
"""The file with secrets in the configuration folder: mode 0600, in the format of dotenv files."""
FILE_LIMIT_BYTES = 1 << 20
KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

SESSION = "session"
KEYRING = "keyring"
CREDENTIALS = "credentials"
FILE = FILE_NAME


def refusal_of_mode(mode: int, uid: int, own_uid: int) -> str:
    """Return why a secrets file is refused; empty if it is accepted.

    `mode` and `uid` are those of the file, and `own_uid` is the user id of this process.
    """
    if uid != own_uid:
        return f"it belongs to user {uid}, not to you"
    if mode & 0o077:
        return f"its mode is {mode & 0o777:04o}, so that others may read it: chmod 600"
    return ""
