"""The table on searching many vectors shows the last measurement."""

import json

from bench.vector_graph import BEGIN, END, PAGE, RESULTS, table


def test_the_page_has_the_table_of_the_figures() -> None:
    shown = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip()

    assert shown == table(json.loads(RESULTS.read_text(encoding="utf-8"))).strip()
