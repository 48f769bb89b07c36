"""How to repair each problem that the daemon reports.

If the daemon knows a better remedy than this table has, it puts that remedy at the end of the
problem's text, after `; `.
"""

_BY_WORDS = (
    ("no routing: ", "`capd doctor` says how to repair the model; tools work without it"),
    ("config.toml is not used", "correct that line, then `capd restart`"),
    (".toml", "correct that file; `capd check` has file and line"),
    ("CAPD_", "correct or unset that variable, then `capd restart`"),
    ("secrets.env", "`capd secret list` says what is read instead; `chmod 600` where it is open"),
    ("keyring", "`capd secret list` says what is read instead"),
    ("ledger", "make room, or see who owns the state folder; `capd doctor` names it"),
)
_ELSE = "`capd doctor` looks closer"


def remedy(problem: str) -> str:
    """Return one line that says how to repair `problem`."""
    _, _, own = problem.rpartition("; ")
    if own and own != problem:
        return own
    return next((fix for words, fix in _BY_WORDS if words in problem), _ELSE)
