"""Writes the vectors of the background messages that come with capd.

    python -m bench.background_vectors

They are in the format of a tap's `vectors.bin`, so that a first start embeds none of them.
"""

import sys

from capd.adapters.model.minilm import ROUTING
from capd.adapters.routing_files import BACKGROUND_VECTORS_FILE, background_messages
from capd.core.taps.tap_vectors import written_vectors
from capd.tap_build import embedded


def main() -> int:
    vectors = embedded(background_messages(), {})
    BACKGROUND_VECTORS_FILE.write_bytes(written_vectors(vectors, ROUTING.key, ROUTING.dimensions))
    print(f"{BACKGROUND_VECTORS_FILE}: the vectors of {len(vectors)} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
