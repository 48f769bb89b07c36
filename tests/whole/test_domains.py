"""Domains: what a session's configuration leaves out."""

import json

from whole_daemon import Home


def test_a_client_of_one_domain_has_no_capability_of_another(home: Home) -> None:
    for name, domain in (("alpha", "developer"), ("beta", "writer")):
        home.plain(name)
        config = home.folder / "tap" / "capabilities" / name / "config.toml"
        config.write_text(f'{config.read_text()}domains = ["{domain}"]\n')
    home.plain("anybodys")
    (home.folder / "config" / "config.toml").write_text(
        '[clients.test-editor]\ndomain = "developer"\n'
    )
    home.start()
    editor = home.shim("one")

    listed = editor.call("capability", {"action": "list"})["content"][0]["text"]
    enabled = [home.ask("enable", session="one", name=n) for n in ("alpha", "beta", "anybodys")]

    assert "- alpha" in listed
    assert "- beta" not in listed
    assert "1 more are outside domain 'developer'." in listed
    assert [each["ok"] for each in enabled] == [True, False, True]
    assert enabled[1]["text"] == (
        "Capability 'beta' is for writer; this session's domain is 'developer'."
    )
    assert json.dumps(home.ask("status")["daemon"]["degraded"]) == "[]"
    editor.leave()
