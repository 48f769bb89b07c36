"""Messages of the settings: the keys, their values, and where each value comes from."""

import msgspec


class ReloadSettings(msgspec.Struct, frozen=True, tag="settings.reload"):
    """Read the settings files again. If a file is wrong, its last valid values stay in force."""


class DescribeSettings(msgspec.Struct, frozen=True, tag="settings.describe"):
    """Report the settings in force, and which are ignored and why."""

    project: str = ""
    """A project whose own file is included; empty for the daemon's settings alone."""


class SettingValue(msgspec.Struct, frozen=True):
    """One key and its value."""

    key: str
    value: bytes
    """As JSON."""
    origin: str = ""
    """The file or variable that sets it; empty for the default."""


class ProjectProblems(msgspec.Struct, frozen=True):
    """The problems of one project's settings file."""

    project: str
    problems: list[str]


class SettingsDescribed(msgspec.Struct, frozen=True, tag="settings.described"):
    """Reply to a request about settings: all settings, and their problems."""

    problems: list[str]
    """Which of the user's own settings are ignored, and why."""
    projects: list[ProjectProblems] = []
    needs_restart: list[str] = []
    """Keys that were changed and take effect only after a restart."""
    watch: str = ""
    """Why file changes are not noticed; empty if they are."""
    values: list[SettingValue] = []


class SettingsChanged(msgspec.Struct, frozen=True, tag="settings.changed"):
    """Event: a setting has a new value, which is in force."""


Request = ReloadSettings | DescribeSettings
Reply = SettingsDescribed
Event = SettingsChanged
