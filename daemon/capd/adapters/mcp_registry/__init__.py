"""The registries of servers, the registries of packages, and local copies of both."""
