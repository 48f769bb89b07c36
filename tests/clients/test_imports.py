"""The modules of the clients import each other in one direction."""

import graphlib

import grimp


def test_no_modules_of_the_clients_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("capd_client", exclude_type_checking_imports=True)
    imports = {
        module: set(graph.find_modules_directly_imported_by(module)) - {module}
        for module in graph.modules
    }

    order = list(graphlib.TopologicalSorter(imports).static_order())

    assert set(order) == graph.modules
