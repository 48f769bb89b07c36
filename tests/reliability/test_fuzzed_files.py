"""Files of any content, one after the other: what each costs the daemon is within its bounds.

`CAPD_FUZZ_SECONDS` says for how long; half of it is for settings, which have the most work left in
the daemon. What is measured is the CPU time of this process, which does what the daemon does, and
what its memory has grown by: the machine may be as busy as it likes.
"""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.hostile_files import ATTACKS, forget_peak, peak_bytes
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from capd.adapters.live_settings import LiveSettings
from capd.adapters.parsing.jobs import (
    ReadCapability,
    ReadMemory,
    ReadOverlay,
    ReadProjectSettings,
    ReadSkill,
    ReadSkillText,
)
from capd.adapters.parsing.parser import LONGEST_JOB, Parser
from capd.core.memories.memory_format import LARGEST_BYTES as LARGEST_MEMORY
from capd.core.memories.memory_format import MemoryFile
from capd.core.settings.project_keys import FILE_NAME, LARGEST_BYTES
from capd.core.taps.skills import SkillFile
from capd.core.taps.toml_folder import MOST_FINDINGS
from capd_protos.types import CapabilityName, TapName

pytestmark = pytest.mark.reliability

SECONDS = float(os.environ.get("CAPD_FUZZ_SECONDS", "120"))
LONGEST_CPU = 0.05
MOST_BYTES = 10 << 20
AT_A_TIME = 20
TAP = TapName("t")

SEEDS = (
    *(" ", "\n", "\t", "\r\n", "\r", "=", " = ", ".", ",", "[", "]", "[[", "]]", "{", "}", "#"),
    *('"', "'", '"""', "'''", "\\", "\\u0000", "\\U0010FFFF", "\ufeff", "\x00", "\x7f", "\u2028"),
    *("0", "1e309", "nan", "-inf", "9" * 50, "1979-05-27T07:32:00Z", "true", "0x", "_"),
    *("policy", "deny", "allow", "surface", "pins", "mode", "sessions", "tools", "curation", "k"),
    *("domain", "triggers", "mcp.servers", "name", "command", "args", "env", "kind", "content"),
    *("arguments", "required", "properties", "pattern", "(a+)+$", "tool", "refuses", "x:y"),
    *("---\n", "- ", "? ", ": ", "&a ", "*a", "!!python/object:os.system", "|\n", ">-\n", "<<: "),
    *("*", "?", "[!a]", "[a-z]", "{{ENV:A}}", "{{{{", "./x", "../..", "file://", "a" * 40),
    *("[policy]\ndeny = [", '[[mcp.servers]]\nname = "a"\ncommand = "b"\n', "{a = {", "a.a.a."),
)

fragments = st.one_of(st.sampled_from(SEEDS), st.text(max_size=8))
repeated = st.builds(
    lambda parts, times: ("".join(parts) * times)[: 1 << 17],
    st.lists(fragments, min_size=1, max_size=5),
    st.integers(0, 15).map(lambda n: 2**n),
)
texts = st.builds(
    lambda parts: "".join(parts)[: 1 << 18],
    st.lists(st.one_of(fragments, fragments, repeated), max_size=12),
)


@st.composite
def settings_texts(draw: st.DrawFn) -> str:
    """Draw a text that is often TOML, so that what comes after the parser has work."""
    lines = [draw(texts)] if draw(st.booleans()) else []
    for key, kind in draw(
        st.lists(
            st.tuples(
                st.sampled_from(
                    ("policy.deny", "policy.allow", "surface.pins", "surface.mode", "domain")
                ),
                st.integers(1, 80),
            ),
            unique_by=lambda pair: pair[0],
        )
    ):
        rules = [draw(st.text("ab:*?[]!-é", max_size=20)) * 6 for _ in range(min(kind, 4))]
        listed = ",".join(f"'{rule}{n}'" for n in range(kind // 4 + 1) for rule in rules)
        lines.append(f"{key} = [{listed}]" if "." in key else f"{key} = '{rules[0]}'")
    return "\n".join(lines)


class Costs:
    """What this process does for one file, at its worst."""

    def __init__(self, folder: Path) -> None:
        self.parser = Parser()
        self.folder = folder
        self.files = 0
        self.worst_cpu = 0.0
        self.worst_bytes = 0
        self.longest_parse = 0.0
        self.live = LiveSettings(folder / "config", {}, None, reader=self.parser)
        self.live.load()
        self.project = folder / "project"
        self.project.mkdir()

    def read(self, job: Any) -> Any:
        with self._measured():
            result, seconds = self.parser.timed(job)

        self.longest_parse = max(self.longest_parse, seconds)
        return result

    def settle(self, content: bytes) -> None:
        """Take in a project's settings, and judge two hundred tools by them."""
        (self.project / FILE_NAME).write_bytes(content)
        project = str(self.project)

        with self._measured():
            file = self.live._project_file(project)
            file.load()
            self.live._projects[project] = file
            self.live._of_projects[project] = self.live._of_file(file)
            rules = self.live.rules(project)
            policy = rules.policy(["zed"], project)
            for number in range(200):
                policy.restriction("server", f"a_tool_of_some_server_{number}")

        said = self.live.project_problems.get(project, [])
        assert len(said) <= 2 * MOST_FINDINGS, said
        assert all(len(line) < 1000 for line in said), said

    @contextmanager
    def _measured(self) -> Iterator[None]:
        # A look of the collector at all that a test run holds is no file's cost.
        gc.disable()
        before, cpu = forget_peak(), time.process_time()
        try:
            yield
            spent, grown = time.process_time() - cpu, peak_bytes() - before
        finally:
            gc.enable()
        self.files += 1
        self.worst_cpu, self.worst_bytes = max(self.worst_cpu, spent), max(self.worst_bytes, grown)
        assert spent < LONGEST_CPU, f"{spent * 1000:.0f} ms"
        assert grown < MOST_BYTES, f"{grown} bytes"


@pytest.fixture
def costs(tmp_path: Path) -> Iterator[Costs]:
    made = Costs(tmp_path)
    # What is imported at the first use is no file's cost.
    made.settle(b'[policy]\ndeny = ["a*"]\n')
    yield made
    made.parser.close()
    print(
        f"\n{made.files} files: at most {made.worst_cpu * 1000:.1f} ms and "
        f"{made.worst_bytes / (1 << 20):.1f} MB of the daemon's, "
        f"{made.longest_parse:.2f} s of the parser's"
    )


FUZZ = settings(
    max_examples=AT_A_TIME,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.large_base_example,
        HealthCheck.too_slow,
    ],
)


def rounds(share: float) -> Iterator[int]:
    """Yield until a share of the time is over, once at least."""
    over_at = time.monotonic() + SECONDS * share
    number = 0
    while not number or time.monotonic() < over_at:
        yield number
        number += 1


@pytest.mark.timeout(SECONDS + 600)
def test_no_file_of_settings_is_over_the_bounds(costs: Costs) -> None:
    @FUZZ
    @given(st.one_of(texts, settings_texts()).map(lambda t: t.encode("utf-8", "replace")))
    def settle(content: bytes) -> None:
        costs.settle(content)

    @FUZZ
    @given(st.binary(max_size=4096))
    def settle_bytes(content: bytes) -> None:
        costs.settle(content)

    for _ in rounds(0.5):
        settle()
        settle_bytes()


@pytest.mark.timeout(SECONDS + 600)
def test_no_file_of_a_tap_is_over_the_bounds(costs: Costs) -> None:
    def read(job: Any) -> None:
        result = costs.read(job)
        findings = getattr(result, "findings", ())
        assert len(findings) <= 3 * MOST_FINDINGS, findings
        assert all(len(each.reason) < 2000 for each in findings)

    @FUZZ
    @given(texts, texts, st.sampled_from(["toml", "md"]))
    def read_each(one: str, other: str, suffix: str) -> None:
        content = one.encode("utf-8", "replace")
        memory = content[: LARGEST_MEMORY + 1]
        headed = b"---\nname: a\n" + content + b"\n---\nx"
        file = MemoryFile(f"memories/m.{suffix}", "/m", memory)
        provider = f'[[mcp.servers]]\nname = "a"\ncommand = "b"\n{other}'
        read(ReadMemory(TAP, file))
        read(ReadMemory(TAP, MemoryFile("memories/m.md", "/m", headed[:LARGEST_MEMORY])))
        for skill in (content, headed):
            read(ReadSkill(TAP, SkillFile("a", "skills/a/SKILL.md", "/s", skill)))
            read(ReadSkillText(skill))
        for config in (one, 'triggers = ["a", "b", "c"]\n'):
            given_texts = {"config.toml": config, "default.toml": provider}
            name = CapabilityName("c")
            read(ReadCapability(TAP, name, "capabilities/c", given_texts))
        read(ReadOverlay("/o", {"overlay.toml": one, "capabilities/c.toml": other}))

    for _ in rounds(0.5):
        read_each()


def test_the_bounds_hold_for_every_known_attack(costs: Costs, tmp_path: Path) -> None:
    for name, attack in ATTACKS.items():
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        if name.startswith("settings"):
            attack(folder)
            content = (folder / FILE_NAME).read_bytes()
            costs.settle(content)
            costs.read(ReadProjectSettings(content[:LARGEST_BYTES].decode("utf-8", "replace")))

    assert costs.longest_parse <= LONGEST_JOB
