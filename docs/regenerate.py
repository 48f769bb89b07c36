"""Write the table of keys in docs/configuration.md from the structs of the configuration.

Run `python docs/regenerate.py` after a change there; a test compares.
"""

import pathlib

from capd.adapters.key_documents import KeyDocument, key_documents

PAGE = pathlib.Path(__file__).with_name("configuration.md")
BEGIN = "<!-- keys: written by docs/regenerate.py -->\n"
END = "<!-- end of keys -->"
HEAD = "| key | type | default | meaning | variable | a change counts | in a project |"


def page_text() -> str:
    """Return the page with the table as it has to be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = "\n".join([HEAD, "|---" * 7 + "|", *map(_row, key_documents())])
    return f"{before}{BEGIN}{rows}\n{END}{after}"


def _row(key: KeyDocument) -> str:
    counts = "live" if key.is_live else "next start"
    variable = f"`{key.variable}`" if key.variable else ""
    default = f"`{key.default}`" if key.default else ""
    cells = (f"`{key.name}`", key.type, default, key.meaning, variable, counts, key.project)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
