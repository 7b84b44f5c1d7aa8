"""The project's own sources as data, for the tests that read them: paths, syntax trees, functions."""

from __future__ import annotations

import ast
import importlib
import io
import pkgutil
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("logserver", "storage", "api")
SOON_COMPILED = {"MYPYC_OPT_LEVEL": "0"}  # for builds whose speed is not tested; see setup.py
SPARK = ("numpy", "pyarrow", "pyspark")
FOREIGN = (
    ROOT / "tests" / "golden" / "kafka",
    ROOT / "tests" / "golden" / "rocketmq",
    ROOT / "tests" / "golden" / "rocketmq_compacted",
    ROOT / "tests" / "interop" / "peers",
)

_IN_BACKTICKS = re.compile(r"`[^`]*`")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def modules(*folders: str) -> list[Path]:
    """Return the Python files below these folders, as paths from the root."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT) for path in found if not _is_foreign(path))


def _is_foreign(path: Path) -> bool:
    return any(folder in path.parents for folder in FOREIGN)


def text_of(path: Path) -> str:
    """Return the content of the file."""
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """Return the parsed module."""
    return ast.parse(text_of(path), filename=str(path))


def functions(path: Path) -> Iterator[Function]:
    """Yield every function and method of a module, including nested functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring and comment; names in backticks are left out."""
    text = text_of(path)
    for node in ast.walk(tree(path)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                yield node.lineno, _IN_BACKTICKS.sub("", docstring)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _IN_BACKTICKS.sub("", token.string)


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every literal with several words, without docstrings and names in backticks."""
    docstrings = {id(node.value) for node in ast.walk(tree(path)) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree(path)):
        match node:
            case ast.Constant(value=str(text)) if " " in text and id(node) not in docstrings:
                yield node.lineno, _IN_BACKTICKS.sub("", text)


def pages() -> list[Path]:
    """Return the pages and tables of text: Markdown and TOML files."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("*.toml")]
    for folder in ("docs", *PACKAGES, "tests"):
        found += [path for ext in ("md", "toml") for path in (ROOT / folder).rglob(f"*.{ext}")]
    return sorted(path.relative_to(ROOT) for path in found if not _is_foreign(path))


def lines_of(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line of a page; code blocks and names in backticks are left out."""
    in_code = False
    for number, line in enumerate(text_of(page).splitlines(), start=1):
        in_code ^= line.startswith("```")
        if not in_code:
            yield number, _IN_BACKTICKS.sub("", line)


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and value of each constant of a module that is a literal, or an expression of numbers."""
    for node in tree(path).body:
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.Assign(targets=[ast.Name(id=name)], value=value)
            ):
                if isinstance(value, ast.Constant | ast.BinOp | ast.UnaryOp):
                    yield name.lstrip("_"), ast.unparse(value)


def import_circles(*packages: str) -> list[set[str]]:
    """Return the groups of modules that import each other, in imports anywhere in their code."""
    paths = {_dotted(path): path for path in modules(*packages)}
    imports = {name: _imports(path) & paths.keys() - {name} for name, path in paths.items()}
    reached = {name: _reached(name, imports) for name in imports}
    groups = {frozenset(b for b in reached[a] if a in reached[b]) for a in imports}
    return [set(group) for group in groups if len(group) > 1]


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), names=aliases):
                inner = {f"{module}.{alias.name}" for alias in aliases}
                are_modules = {name for name in inner if _is_module(name)}
                names |= are_modules | ({module} if inner - are_modules else set())
    return names


@cache
def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _reached(name: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for other in imports[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of a module, with the dotted name of the function: `open`, `os.open`, `path.write_text`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def import_all(package: str) -> list[str]:
    """Import every module of a package and return the names, without `__main__`.

    Modules that need Spark are left out if it is not installed.
    """
    names = [package]
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not info.name.endswith(".__main__"):
            try:
                importlib.import_module(info.name)
            except ModuleNotFoundError as error:
                if error.name not in SPARK:
                    raise
                continue
            names.append(info.name)
    return names
