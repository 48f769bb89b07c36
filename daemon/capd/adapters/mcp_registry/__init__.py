"""The registries of servers, the registries of packages, and what is kept of both."""
