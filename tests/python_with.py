"""An interpreter that finds modules of a test before the installed ones.

The daemon and what it starts take no notice of PYTHONPATH, so that a project cannot bring modules
in. A virtual environment of a few files does the same for a test.
"""

import sys
import sysconfig
from pathlib import Path


def python_with(modules: Path, folder: Path) -> str:
    """Make the interpreter in `folder` and return its path."""
    if not folder.exists():
        base = Path(sys._base_executable)  # type: ignore[attr-defined]
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(base)
        (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = folder / "lib" / version / "site-packages"
        site.mkdir(parents=True)
        installed = sysconfig.get_path("purelib")
        (site / "test.pth").write_text(
            f"import site; site.addsitedir({installed!r})\n"
            f"import sys; sys.path.insert(0, {str(modules)!r})\n"
        )
    return str(folder / "bin" / "python")
