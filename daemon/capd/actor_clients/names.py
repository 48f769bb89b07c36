"""The names of the actors on the bus."""

from capd_protos.types import ActorName

CURATOR = ActorName("curator")
DEFINITIONS = ActorName("definitions")
EMBEDDER = ActorName("embedder")
FINDER = ActorName("finder")
INDEX = ActorName("index")
LEDGER = ActorName("ledger")
REGISTRY = ActorName("registry")
SETTINGS = ActorName("settings")
SUPERVISOR = ActorName("supervisor")

EVERY = (*(CURATOR, DEFINITIONS, EMBEDDER, FINDER, INDEX, LEDGER, REGISTRY, SETTINGS, SUPERVISOR),)
