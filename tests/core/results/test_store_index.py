"""Which stored results are evicted, compared with a plain list of files."""

from hypothesis import given
from hypothesis import strategies as st

from capd.core.results.store_index import StoreIndex

NAMES = st.sampled_from("abcdef")
STEPS = st.one_of(
    st.tuples(st.just("add"), NAMES, st.integers(0, 40)),
    st.tuples(st.sampled_from(["use", "remove"]), NAMES, st.just(0)),
)


@given(st.lists(STEPS, max_size=60))
def test_the_least_recently_used_go_first_and_no_more_than_must(
    steps: list[tuple[str, str, int]],
) -> None:
    index = StoreIndex(100)
    files: list[tuple[str, int]] = []
    for step, name, size in steps:
        there = [each for each in files if each[0] == name]
        if step == "add":
            goes: list[str] = []
            added = 0 if there else size
            for each, _ in files:
                if sum(s for n, s in files if n not in goes) + added <= 100:
                    break
                if each != name:
                    goes.append(each)

            assert index.make_room(size, keep=name) == goes

            index.add(name, size)
            files = [f for f in files if f[0] not in {*goes, name}] + [(name, size)]
        elif step == "use" and there:
            index.use(name)
            files = [f for f in files if f[0] != name] + there
        elif step == "remove":
            index.remove(name)
            files = [f for f in files if f[0] != name]

        assert index.names() == [each for each, _ in files]
        assert index.total_bytes == sum(size for _, size in files)
