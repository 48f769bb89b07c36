"""Messages of the settings: what can be set, what is set, and where it is from."""

import msgspec


class ReloadSettings(msgspec.Struct, frozen=True, tag="settings.reload"):
    """Read the files of settings again; one that cannot be used keeps its last good state."""


class DescribeSettings(msgspec.Struct, frozen=True, tag="settings.describe"):
    """Say what holds, and what does not and why."""

    project: str = ""
    """A project whose file counts as well; empty for what holds for the daemon."""


class SettingValue(msgspec.Struct, frozen=True):
    """One key that there is."""

    key: str
    value: bytes
    """As JSON."""
    origin: str = ""
    """A file or a variable; empty for the default."""


class ProjectProblems(msgspec.Struct, frozen=True):
    """What of a project's file does not count."""

    project: str
    problems: list[str]


class SettingsDescribed(msgspec.Struct, frozen=True, tag="settings.described"):
    """The settings."""

    problems: list[str]
    """What of the user's own files, and of variables, does not count, and why."""
    projects: list[ProjectProblems] = []
    needs_restart: list[str] = []
    """Keys whose values are others than those in use, which only a restart changes."""
    watch: str = ""
    """Why changes of files are not followed; empty where they are."""
    values: list[SettingValue] = []


class SettingsChanged(msgspec.Struct, frozen=True, tag="settings.changed"):
    """Something holds that did not before."""


Request = ReloadSettings | DescribeSettings
Reply = SettingsDescribed
Event = SettingsChanged
