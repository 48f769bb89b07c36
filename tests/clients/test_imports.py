"""What modules of the clients import: each other in one direction, and no more than they may."""

import graphlib
import subprocess
import sys
from pathlib import Path

import grimp

import capd_client


def test_no_modules_of_the_clients_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("capd_client", exclude_type_checking_imports=True)
    imports = {
        module: set(graph.find_modules_directly_imported_by(module)) - {module}
        for module in graph.modules
    }

    order = list(graphlib.TopologicalSorter(imports).static_order())

    assert set(order) == graph.modules


def test_what_starts_the_daemon_imports_no_file_that_a_python_path_could_replace() -> None:
    """Modules of the standard library that are files come after the folders of PYTHONPATH."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); "
        "import capd_client.daemon_process; print(*sorted(set(sys.modules) - before))"
    )
    clients = str(Path(capd_client.__file__).parents[1])

    shown = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, clients], capture_output=True, check=True
    )

    assert shown.stdout.split() == [b"capd_client", b"capd_client.daemon_process"]
