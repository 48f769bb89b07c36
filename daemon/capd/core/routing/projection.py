"""A learnt linear map of the embedding model's vectors.

The model puts texts of one subject near each other. The projection turns its vectors so that a
message comes nearer to the phrases of the capability that the message asks for: a vector x of
length 1 becomes x + x @ down @ up, scaled to length 1. `bench/routing_projection.py` learns the two
matrices and `none`, a vector that speaks for "no capability".

The stored vectors of phrases stay those of the model. The cosine of the projections of a message a
and a phrase c is c @ image(a) / length(c), where length(c) is the length of c + c @ down @ up. So a
catalog needs one number more for each phrase: this length.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capd.core.errors import CapdError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


class BadProjectionError(CapdError):
    """The bytes of a projection do not fit the dimensions of the model."""


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A learnt linear map of vectors: a vector x becomes x + x @ down @ up.

    `down` is dimensions x rank, `up` is rank x dimensions. `none` is a vector that speaks for "no
    capability".
    """

    down: "Vectors"
    up: "Vectors"
    none: "Vectors"

    def turned(self, vectors: "Vectors") -> "Vectors":
        """Return x + x @ down @ up for one vector or for rows, of any length."""
        inner: Vectors = vectors @ self.down
        turned: Vectors = inner @ self.up
        return vectors + turned

    def lengths(self, vectors: "Vectors") -> "Vectors":
        """Return the length of each row after the projection; never 0."""
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

        lengths: Vectors = np.maximum(
            np.linalg.norm(self.turned(vectors), axis=-1), np.float32(1e-6)
        ).astype(np.float32)
        return lengths

    def projected(self, vectors: "Vectors") -> "Vectors":
        """Return the projection, of length 1, of one vector or of each row; 0 stays 0."""
        projected: Vectors = self.turned(vectors) / self.lengths(vectors)[..., None]
        return projected

    def images(self, vectors: "Vectors") -> "Vectors":
        """Return the images of messages, with which phrases are compared without projecting them.

        The product of a phrase's vector with an image is the cosine of their projections, times the
        phrase's length after the projection (`lengths`).
        """
        projected = self.projected(vectors)
        inner: Vectors = projected @ self.up.T
        images: Vectors = inner @ self.down.T
        return projected + images

    def to_bytes(self) -> bytes:
        """Return `down`, `up` and `none`, one after the other, as float16."""
        import numpy as np  # noqa: PLC0415 - as above

        parts = (self.down, self.up, self.none)
        return np.concatenate([part.ravel() for part in parts]).astype("<f2").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, dimensions: int) -> "Projection":
        """Read the projection in `data`, which must be for vectors of `dimensions` numbers.

        Raises:
            BadProjectionError: the size is wrong.
        """
        import numpy as np  # noqa: PLC0415 - as above

        rank, rest = divmod(len(data) // 2 - dimensions, 2 * dimensions)
        if len(data) % 2 or rest or rank < 0:
            raise BadProjectionError(f"a projection of {len(data)} bytes for {dimensions} numbers")
        numbers = np.frombuffer(data, "<f2").astype(np.float32)
        half = rank * dimensions
        return cls(
            numbers[:half].reshape(dimensions, rank),
            numbers[half : 2 * half].reshape(rank, dimensions),
            numbers[2 * half :],
        )
