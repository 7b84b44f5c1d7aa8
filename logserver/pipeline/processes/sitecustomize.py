"""Of the Python processes that Spark starts for the data source: they take PySpark as it is installed.

Owns their path alone. Spark puts its own zip file before what is installed. It holds the same sources without byte
code, so that each process compiles them anew: 1.0 s of processor time instead of 0.3 s, and every stream starts one.
The zip is left out only where it lies in the very package that is found without it. Python runs this module when a
process starts (`site`), in the place of another one of its name, which is run from here.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

HERE = str(Path(__file__).parent)
IN_PACKAGE = ("pyspark", "python", "lib", "pyspark.zip")


def _is_spare(entry: str) -> bool:
    """Whether a path is the zip in the package of PySpark that is found without it."""
    path = Path(entry)
    if path.parts[-len(IN_PACKAGE) :] != IN_PACKAGE:
        return False
    spec = PathFinder.find_spec("pyspark", [other for other in sys.path if other != entry])
    return spec is not None and spec.origin == str(path.parents[2] / "__init__.py")


def _become_hidden() -> None:
    """Be the module of this name that Python would have found, with this folder out of its path: it may be another
    copy of this one.
    """
    spec = PathFinder.find_spec(__name__)
    if spec is not None and spec.loader is not None and spec.origin != __file__:
        module = sys.modules[__name__] = module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    sys.path[:] = [entry for entry in sys.path if entry != HERE and not _is_spare(entry)]
    _become_hidden()
