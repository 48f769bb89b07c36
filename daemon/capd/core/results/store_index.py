"""The index of the result store, least recently used first."""


class StoreIndex:
    """The names and sizes of the files of stored results, least recently used first.

    Each method takes constant time, except `names` and `make_room`.
    """

    def __init__(self, most_bytes: int) -> None:
        self.total_bytes = 0
        self._most_bytes = most_bytes
        # A plain dict keeps the order of insertion, and takes half the memory of an OrderedDict.
        self._sizes: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def names(self) -> list[str]:
        """Return the names of the stored files, least recently used first."""
        return list(self._sizes)

    def add(self, name: str, size_bytes: int) -> None:
        """Add a file as the most recently used; it replaces an earlier entry."""
        self.remove(name)
        self._sizes[name] = size_bytes
        self.total_bytes += size_bytes

    def use(self, name: str) -> None:
        """Note that a stored file was read, so that it is kept longer."""
        if name in self._sizes:
            self._sizes[name] = self._sizes.pop(name)

    def remove(self, name: str) -> None:
        """Forget a file."""
        self.total_bytes -= self._sizes.pop(name, 0)

    def make_room(self, size_bytes: int, keep: str) -> list[str]:
        """Remove the least recently used entries until `size_bytes` more fit; return their names.

        `keep` is the name of the file that needs the room. This file is never removed. If it is in
        the index already, no room is needed.
        """
        added = 0 if keep in self._sizes else size_bytes
        dropped: list[str] = []
        for name in self._sizes:
            if self.total_bytes + added <= self._most_bytes:
                break
            if name != keep:
                dropped.append(name)
                added -= self._sizes[name]
        for name in dropped:
            self.remove(name)
        return dropped
