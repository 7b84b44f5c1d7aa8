"""Rules of the code that no other tool enforces: reads the sources and fails where a rule is broken.

Limits only go down. A rule that needs an exception names the module in a table of its own here, with the reason.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.sources import (
    PACKAGES,
    Function,
    calls,
    constants,
    functions,
    import_circles,
    lines_of,
    messages,
    modules,
    pages,
    prose,
    text_of,
    tree,
)

MAX_MODULE_LINES = 800
MIN_MODULE_LINES = 60
MAX_FUNCTION_LINES = 60  # without the docstring
MAX_POSITIONAL = 5
MAX_MODULES = 15  # of a package, besides __init__
MAX_TEST_MODULES = 25  # of a folder


# Modules that other packages import from: their methods must be documented too.
DOORS = (
    "storage/model.py",
    "storage/errors.py",
    "storage/contract.py",
    "storage/columns.py",
    "storage/registry.py",
)

# The only module that reads the machine's clock; all other modules are handed a clock.
CLOCK_OWNERS = {"storage/registry.py"}

# Handlers of last resort. They convert any exception to a plain answer of a command, or to a log line with traceback of
# a background loop that continues.
LAST_RESORTS = {
    "api/kafka/dispatch.py",
    "api/kafka/first_step.py",
    "logserver/cli/__init__.py",
    "logserver/cli/spark/progress.py",
    "logserver/groups/consumer.py",
    "logserver/groups/members_log.py",
    "logserver/groups/offsets.py",
    "logserver/service/commit.py",
    "logserver/service/upkeep.py",
    "logserver/transactions/half.py",
    "logserver/transactions/service.py",
}

# Modules of a format folder without a binary layout: names, text files, compression formats of other projects.
NO_LAYOUT = {
    "__init__.py",
    "checkpoints.py",
    "compression.py",
    "config_reader.py",
    "config_shapes.py",
    "names.py",
    "properties.py",
    "suspect_fields.py",
}

# Words of an older dialect. Plain words for them: again; after; next to; is stored; no program; a program; reported.
OLD_WORDS = re.compile(
    r"(?<![\w-])(?:anew|behind|beside|lies?|nobody|of ours|of theirs|somebody|told|whoever)(?![\w-])",
    re.IGNORECASE,
)
# In code, name the thing instead.
VAGUE_WORDS = re.compile(r"\b(?:those of|what is)\b", re.IGNORECASE)

# file: the words that stay, and why.
KEPT_WORDS = {
    "CHANGELOG.md": "past releases",
    "tests/test_tidy.py": "the list itself",
}

# Constants of these kinds have one definition in `storage`. REPEATED names the exceptions: they only leave it.
ONE_PLACE = re.compile(
    r"BACKEND|INT\d+_MAX|MAX_(?:INT\d+|OFFSET|PORT|PARTITIONS)|\w+_(?:AT_ONCE|BYTES|PROBED|ROWS)"
)
REPEATED = {
    "BLOCK_BYTES",
    "CHUNK_BYTES",
    "MAX_PORT",
    "NEAR_BYTES",
    "RUN_BYTES",
    "RUN_ROWS",
    "SECTOR_BYTES",
    "SIZE_BYTES",
    "UNITS_PROBED",
    "UUID_BYTES",
    "WINDOW_BYTES",
    "WRITE_BYTES",
}

# Modules under 60 lines, and why they stand alone.
SMALL_MODULES = {
    "api/operations/documentation.py": "a module per resource",
    "api/operations/parameters.py": "operations share it",
    "api/connection/kernel.py": "HTTP and Kafka share it",
    "api/http/caching.py": "pages and documents share it",
    "api/kafka/client_topics.py": "all handlers share it",
    "logserver/bench/targets/base.py": "the interface: targets do not import each other",
    "logserver/logs.py": "a duty of the process",
    "logserver/pipeline/processes/sitecustomize.py": "Python's own name for a start-up hook",
    "storage/kafka/prompt.py": "a duty of the store, like storage/prompt.py",
    "storage/coding/checksum.py": "the choice of a library",
    "storage/coding/config_values.py": "both backends share it",
    "storage/coding/json_file.py": "both backends share it",
    "storage/conversion/mapping.py": "one rule for both directions",
    "storage/kafka/log/log_segments.py": "partition, tail and tools share it",
    "storage/rocketmq/tools/verify/due_times.py": "verify and rebuild share it",
    "storage/shared/atomic_store.py": "both backends share it",
    "storage/repairs.py": "the interface: the contract and both backends share it",
    "storage/shared/own_files.py": "both backends share it",
}

WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now"}
FILE_MODULES = {"os", "shutil", "mmap", "fcntl", "tempfile", "io"}
FILE_METHODS = {"write_bytes", "write_text", "touch", "mkdir", "rmdir", "unlink", "symlink_to"}

OURS = modules(*PACKAGES)
ALL = modules(*PACKAGES, "tests", "scripts")


def test_modules_are_short() -> None:
    sizes = {str(path): len(text_of(path).splitlines()) for path in ALL}
    assert {path: size for path, size in sizes.items() if size > MAX_MODULE_LINES} == {}


def test_small_modules_have_a_reason() -> None:
    """A module of few lines is worth its name only if it is compiled, or for the reason in SMALL_MODULES.

    Here and below an exception that is no longer needed fails too: remove it from its table.
    """
    small = {str(path) for path in OURS if _is_small(path)}
    assert small == SMALL_MODULES.keys(), small ^ SMALL_MODULES.keys()


def _is_small(path: Path) -> bool:
    if path.stem in {"__init__", "__main__"} or str(path) in text_of(Path("setup.py")):
        return False
    return len(text_of(path).splitlines()) < MIN_MODULE_LINES


def test_packages_are_small() -> None:
    assert _packages_over(MAX_MODULES, OURS) == set()
    assert _packages_over(MAX_TEST_MODULES, modules("tests", "scripts")) == set()


def _packages_over(limit: int, paths: list[Path]) -> set[str]:
    sizes = Counter(str(path.parent) for path in paths if path.stem not in {"__init__", "conftest"})
    return {package for package, size in sizes.items() if size > limit}


def test_no_import_circles() -> None:
    """Imports inside functions count too: they hide a circle, and do not break it."""
    assert import_circles(*PACKAGES) == []


def test_a_number_has_one_name_in_one_place() -> None:
    places: dict[tuple[str, str], set[str]] = {}
    for path in modules("storage"):
        for name, value in constants(path):
            if ONE_PLACE.fullmatch(name):
                places.setdefault((name, value), set()).add(str(path))
    repeated = {name for (name, _), found in places.items() if len(found) > 1}
    assert repeated == REPEATED, repeated ^ REPEATED


def test_functions_fit_a_screen() -> None:
    sizes = {f"{p}:{f.lineno} {f.name}": _lines_of(f) for p in ALL for f in functions(p)}
    assert {name: size for name, size in sizes.items() if size > MAX_FUNCTION_LINES} == {}


def _lines_of(function: Function) -> int:
    first = function.body[0]
    docstring = _height(first) if ast.get_docstring(function) is not None else 0
    return _height(function) - docstring


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_take_few_positional_arguments() -> None:
    counts = {f"{p}:{f.lineno} {f.name}": _positional(f) for p in OURS for f in functions(p)}
    assert {name: count for name, count in counts.items() if count > MAX_POSITIONAL} == {}


def _positional(function: Function) -> int:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_every_module_says_what_it_owns() -> None:
    assert [str(path) for path in ALL if not ast.get_docstring(tree(path))] == []


def test_the_language_is_plain() -> None:
    """Docstrings, comments, messages and pages: the reader's first language need not be English."""
    found = [
        f"{path}:{line}: {word}" for path, line, word in _old_words() if str(path) not in KEPT_WORDS
    ]
    assert found == []


def _old_words() -> Iterator[tuple[Path, int, str]]:
    for path in _that_match(VAGUE_WORDS, ALL):
        for line, text in (*prose(path), *messages(path)):
            yield from ((path, line, word) for word in VAGUE_WORDS.findall(text))
    for path in _that_match(OLD_WORDS, [*ALL, *pages()]):
        lines = (*prose(path), *messages(path)) if path.suffix == ".py" else lines_of(path)
        for line, text in lines:
            yield from ((path, line, word) for word in OLD_WORDS.findall(text))


def _that_match(words: re.Pattern[str], paths: list[Path]) -> list[Path]:
    return [path for path in paths if words.search(text_of(path))]


def test_what_others_import_is_documented() -> None:
    assert [name for path in OURS for name in _undocumented(path)] == []


def _undocumented(path: Path) -> Iterator[str]:
    for node in _public(tree(path).body):
        if ast.get_docstring(node) is None:
            yield f"{path}:{node.lineno} {node.name}"
        if isinstance(node, ast.ClassDef) and str(path) in DOORS:
            for method in _public(node.body):
                if ast.get_docstring(method) is None:
                    yield f"{path}:{method.lineno} {node.name}.{method.name}"


def _public(body: list[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if not node.name.startswith("_"):
            yield node


def test_nothing_prints() -> None:
    assert _called({"print", "breakpoint"}, OURS) == []


def test_time_comes_from_the_clock_that_was_handed_in() -> None:
    assert _called(WALL_CLOCKS, [path for path in OURS if str(path) not in CLOCK_OWNERS]) == []


def _called(banned: set[str], paths: list[Path]) -> list[str]:
    return [
        f"{path}:{node.lineno} {name}"
        for path in paths
        for name, node in calls(path)
        if name in banned
    ]


def test_only_the_file_layer_touches_files() -> None:
    outside = [p for p in modules("storage") if p.parts[:2] != ("storage", "files")]
    touching = [
        f"{path}:{node.lineno} {name}"
        for path in outside
        for name, node in calls(path)
        if _touches_files(name)
    ]
    assert touching == []


def _touches_files(name: str) -> bool:
    owner, _, last = name.rpartition(".")
    if name == "io.BytesIO":  # in memory, not a file
        return False
    return name == "open" or owner in FILE_MODULES or last in FILE_METHODS


def test_no_handler_swallows_everything() -> None:
    greedy = {str(path): lines for path in OURS if (lines := _greedy_handlers(path))}
    assert greedy.keys() == LAST_RESORTS, greedy


def _greedy_handlers(path: Path) -> list[int]:
    """Return the lines of handlers that catch all exceptions and do not raise again.

    Such a handler is a bare `except`, or names Exception or BaseException.
    """
    return [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and _names_all(node)
        and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
    ]


def _names_all(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {ast.unparse(node) for node in ast.walk(handler.type)}
    return bool(names & {"Exception", "BaseException"})


def test_every_binary_format_draws_its_layout() -> None:
    drawing = re.compile(r"^ *position +bytes +field +note$", re.MULTILINE)
    drawn = {str(p): bool(drawing.search(ast.get_docstring(tree(p)) or "")) for p in _formats()}
    assert drawn, "no format modules: has the layout moved?"
    assert [path for path, there in drawn.items() if not there] == []


def test_every_struct_has_its_size_asserted_beside_it() -> None:
    loose = [
        f"{path}: {name}"
        for path in _formats()
        for name in re.findall(
            r"^(\w+)[^=\n]* = (?:struct\.)?Struct\(", text_of(path), re.MULTILINE
        )
        if not re.search(rf"^assert {name}\.size == ", text_of(path), re.MULTILINE)
    ]
    assert loose == []


def _formats() -> list[Path]:
    return [p for p in modules("storage") if p.parent.name == "format" and p.name not in NO_LAYOUT]


def test_nothing_is_left_to_be_done() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    marks = re.compile(rf"\b({'|'.join(words)})\b")
    assert [str(path) for path in ALL if marks.search(text_of(path))] == []
