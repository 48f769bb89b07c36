"""Fill in what PyPI shows of capd: its addresses, and a README whose links work there.

README links to files beside it, which PyPI does not have. Where the address of the repository is
known, each such link becomes one to the file at the tag of this version, and `[project.urls]` is
filled in. The address is that of whoever publishes, so it is not in the tree:

    CAPD_REPOSITORY=https://git.example.org/ada/capd make wheel

GitHub's workflows say it in `GITHUB_SERVER_URL` and `GITHUB_REPOSITORY`. A build that knows none (a
checkout, a test) has no addresses and README as it is. A wheel built from an sdist keeps what the
sdist says.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def repository(environment: Mapping[str, str]) -> str:
    """Return the address of the repository, or nothing where nobody says it."""
    if said := environment.get("CAPD_REPOSITORY", ""):
        return said.rstrip("/")
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else ""


def urls(address: str) -> dict[str, str]:
    """Return `[project.urls]`; the labels are those that PyPI has icons for."""
    if not address:
        return {}
    return {
        "Homepage": address,
        "Documentation": f"{address}/blob/HEAD/docs/index.md",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Source": address,
    }


def absolute(text: str, address: str, version: str) -> str:
    """Return `text` with links to files beside it as links to the tag of `version`."""
    if not address:
        return text

    def linked(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target or target.startswith(("#", "mailto:")):
            return link[0]
        # The page of an image shows it within the site; `raw` is the image itself.
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}[{link['text']}]({address}/{kind}/v{version}/{target})"

    return _LINK.sub(linked, text.replace("<this repository>", address))


class CapdMetadata(MetadataHookInterface):
    """What hatchling runs for the fields that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        address = repository(os.environ)
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, address, metadata["version"]),
        }
        metadata["urls"] = urls(address)
