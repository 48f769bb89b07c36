"""The daemon as a service of the user: systemd, launchd, or a process of its own."""
