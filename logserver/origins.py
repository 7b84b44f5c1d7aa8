"""The places that the packages `storage` and `api` are imported from.

Owns the check that these two names, which are common words, lead to the packages of this distribution; must not import
anything but the standard library: every command runs the check before it imports them. A project with a package of
the same name hides ours if it comes earlier in the path, and overwrites ours if it is installed in the same folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "duolog"
PACKAGES: Final = ("storage", "api")
MARK: Final = f'__part_of__ = "{DISTRIBUTION}"'.encode()
"""A line of both packages. A package of another project has no such line."""


def misplaced_package(names: Sequence[str] = PACKAGES) -> str | None:
    """Return an error text if a package of these names would be imported from another project, or is missing."""
    home = Path(__file__).resolve().parent.parent
    for name in names:
        spec = find_spec(name)
        origin = None if spec is None else spec.origin
        if spec is None or origin is None:
            return (
                f"the package {name!r}, a part of logserver, is not in {home}: another project with a package of this "
                f"name was perhaps installed here and removed. {_remedy()}"
            )
        if Path(origin).resolve().parent.parent != home or not _is_ours(spec):
            return (
                f"the package {name!r} would be imported from {origin}, which is not a part of logserver"
                f"{_owners(name)}: logserver in {home} needs its own package of this name. {_remedy()}"
            )
    return None


def _is_ours(spec: ModuleSpec) -> bool:
    """Return whether the source has our mark; it is not run."""
    read = getattr(spec.loader, "get_data", None)
    return read is not None and MARK in read(spec.origin)


def _owners(name: str) -> str:
    """Return the names of the other distributions that have installed a package of this name."""
    from importlib.metadata import packages_distributions  # a slow import, for an error alone

    others = sorted(set(packages_distributions().get(name, [])) - {DISTRIBUTION})
    return f" (installed by {', '.join(others)})" if others else ""


def _remedy() -> str:
    return (
        f"Install logserver in an environment of its own: pipx install {DISTRIBUTION}, or "
        f"{sys.executable} -m venv DIR and DIR/bin/pip install {DISTRIBUTION}; and start it as `logserver` or "
        "`python -P -m logserver`"
    )
