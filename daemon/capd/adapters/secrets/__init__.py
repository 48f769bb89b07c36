"""The values of secrets that no client sent: keyring, systemd credentials, `secrets.env`."""
