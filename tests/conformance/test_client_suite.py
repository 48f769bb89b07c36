"""capd as the client of the suite's servers."""

from pathlib import Path

import pytest

from .suite import Suite, failing

pytestmark = pytest.mark.servers

NO_CREDENTIALS = "a login is a person's: a definition cannot name credentials that need none"
NO_SECRET = "its client has a secret, and no key can be given over the front that drives it"
EXPLAINED = {
    "auth/pre-registration": NO_SECRET,
    "auth/client-credentials-jwt": NO_CREDENTIALS,
    "auth/client-credentials-basic": NO_CREDENTIALS,
    "auth/enterprise-managed-authorization": NO_CREDENTIALS,
    "auth/wif-jwt-bearer": NO_CREDENTIALS,
    "auth/dpop": "an extension that capd does not have",
    "auth/dpop-nonce": "an extension that capd does not have",
}
"""Scenarios that fail, each with its reason (docs/protocol.md)."""


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_scenario_that_fails_has_its_reason(
    suite: Suite, tmp_path: Path, revision: str
) -> None:
    found = suite.of_client(revision, tmp_path)

    assert failing(found) == set(EXPLAINED) & {scenario for scenario, _ in found}
