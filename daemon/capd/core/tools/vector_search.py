"""Compares a question's vector with the vectors of tools.

    ExactSearch     every tool is compared: a matrix in memory, and one product for each question
    a graph         only the likeliest tools are compared: `adapters/model/vector_graph`

Both answer with one cosine for each tool, so that ranking does not depend on which one is used.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


class VectorSearch(Protocol):
    """The vectors of an index's tools, one row for each tool."""

    @property
    def rows(self) -> int:
        """The number of tools."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether every tool is compared with every question."""
        ...

    def cosines(self, vector: "Vectors", beside: Sequence[int]) -> "Vectors":
        """Return the cosine of each tool with `vector`, the unit vector of a question.

        A tool that was not compared has 0. The rows in `beside` are always compared, and so are the
        nearest ones.
        """
        ...


class ExactSearch:
    """Compares every tool with a question. A vector of 384 dimensions takes 1,536 bytes."""

    def __init__(self, vectors: "Vectors") -> None:
        """Create it from unit vectors, one row for each tool.

        Raises:
            ValueError: `vectors` is not a matrix.
        """
        if vectors.ndim != 2:  # noqa: PLR2004 - a matrix
            raise ValueError(f"vectors of shape {vectors.shape}")
        self._vectors = vectors

    @property
    def rows(self) -> int:
        """The number of tools."""
        return len(self._vectors)

    @property
    def is_exact(self) -> bool:
        """True: every tool is compared."""
        return True

    def cosines(self, vector: "Vectors", beside: Sequence[int] = ()) -> "Vectors":  # noqa: ARG002
        """Return the cosine of each tool with `vector`, the unit vector of a question."""
        return self._vectors @ vector
