"""Decides whether a connection may use the session that its hello names."""

import hmac
from typing import Literal

from capd.core.sessions.session_keys import is_key
from capd.core.sessions.session_record import SessionRecord, may_resume


def refusal(
    key: str,
    resume: str,
    record: SessionRecord | None,
    *,
    is_ending: bool = False,
    token: str | None = None,
) -> tuple[Literal["bad_hello", "resume_refused", "session_in_use"], str] | None:
    """Return the error code and the reason to refuse a hello; None if the session is granted.

    `key` and `resume` are those of the hello; both may be empty. `token` is the resume token of the
    open session with this key, None if no session with it is open. Then `record`, its saved record,
    decides: an empty `resume` or the record's last token is accepted.
    """
    if key and not is_key(key):
        return "bad_hello", "a session key is 1 to 128 of A-Z a-z 0-9 . _ : -"
    if token is None:
        if record is None or may_resume(record, resume):
            return None
        return "resume_refused", f"session {key} has another token by now"
    if is_ending:
        return "session_in_use", f"session {key} is just ending; try again"
    # As bytes: `compare_digest` takes only ASCII strings, and one of them is the client's.
    if hmac.compare_digest(resume.encode(), token.encode()):
        return None
    text = f"session {key} is not over; resume it with its last token"
    return ("resume_refused" if resume else "session_in_use"), text
