"""`logserver help TOPIC`: the pages of the documentation, the exit codes, and the help of commands, on the terminal.

Owns the list of topics and the choice among them. Must not contain texts of its own: the pages are in docs/,
which a wheel has as `logserver/docs`.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from logserver.cli.failures import EXIT_CODES
from logserver.cli.output import write_text

PACKAGE: Final = Path(__file__).resolve().parent.parent
PLACES: Final = (PACKAGE / "docs", PACKAGE.parent / "docs")  # of a wheel, of a checkout
PROJECT_FILE: Final = "pyproject.toml"
EXIT_CODES_TOPIC: Final = "exit-codes"
FORMATS: Final = "formats"
MAX_FOUND: Final = 4

# Pages on the project itself.
OMITTED: Final = frozenset({"index", "ARCHITECTURE"})
OMITTED_FOLDERS: Final = frozenset({"decisions"})


@cache
def pages() -> Mapping[str, Path]:
    """Return the pages by topic: the name of the file, and for a README the name of its folder."""
    folder = next((place for place in PLACES if _is_ours(place)), None)
    if folder is None:
        return {}
    topics = {}
    for path in sorted(folder.rglob("*.md")):
        name = path.parent.name if path.stem == "README" else path.stem
        if name not in OMITTED and not OMITTED_FOLDERS & set(path.relative_to(folder).parts):
            topics[name.lower()] = path
    return topics


def _is_ours(place: Path) -> bool:
    """Return whether this folder of pages is the project's: a folder `docs` next to an installed package is not."""
    return place.is_dir() and (place.parent == PACKAGE or (place.parent / PROJECT_FILE).is_file())


def _words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the topics and commands that begin with this text, after a command its own; for the completion of a
    shell.
    """
    inner, names = ctx.find_root(), [*pages(), EXIT_CODES_TOPIC]
    for word in ctx.params.get("words") or ():
        group = inner.command
        command = group.get_command(inner, word) if isinstance(group, click.Group) else None
        if command is None:
            return []
        inner, names = click.Context(command, info_name=word, parent=inner), []
    if isinstance(inner.command, click.Group):
        names += inner.command.list_commands(inner)
    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]


@click.command("help", epilog="Example: logserver help settings")
@click.argument("words", nargs=-1, metavar="[TOPIC|COMMAND]...", shell_complete=_words)
@click.pass_context
def command(ctx: click.Context, *, words: tuple[str, ...]) -> None:
    """Show the text on TOPIC, or the help of COMMAND. Without an argument, list the topics.

    Findings also have codes: see `logserver explain`.
    """
    if not words:
        write_text(_topics())
        return
    topic = "-".join(words).lower()
    if topic == EXIT_CODES_TOPIC:
        write_text(f"{code:>3}  {about}" for code, about in EXIT_CODES.items())
    elif topic in pages():
        _show(pages()[topic].read_text("utf-8"))
    else:
        _show(_help_of(ctx.find_root(), words))


def _topics() -> Iterator[str]:
    """Yield the topics with the titles of their pages."""
    titles = {topic: _title(path) for topic, path in pages().items()}
    titles[EXIT_CODES_TOPIC] = "Exit codes of the commands"
    width = max(map(len, titles))
    yield "Topics of `logserver help TOPIC`:"
    for topic, title in sorted(titles.items()):
        yield f"  {topic:<{width}}  {title}"
    yield "`logserver help COMMAND` shows the help of a command; `logserver --help` lists the commands."


def _title(path: Path) -> str:
    """Return the first heading of a page."""
    found = re.search(r"^# (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return path.stem if found is None else found[1]


def _show(text: str) -> None:
    """Print a text, page by page on a terminal."""
    if sys.stdout.isatty():
        click.echo_via_pager(text)
    else:
        click.echo(text.rstrip("\n"))


def _help_of(root: click.Context, words: tuple[str, ...]) -> str:
    """Return the help of a command, such as `topic create`. Raises BadParameter for an unknown one."""
    ctx = root
    for word in words:
        group = ctx.command
        inner = group.get_command(ctx, word) if isinstance(group, click.Group) else None
        if inner is None:
            raise click.BadParameter(_unknown(root, " ".join(words)), param_hint="TOPIC")
        ctx = click.Context(inner, info_name=word, parent=ctx)
    return ctx.get_help()


def _unknown(root: click.Context, words: str) -> str:
    group = root.command
    commands = group.list_commands(root) if isinstance(group, click.Group) else []
    known = [*pages(), EXIT_CODES_TOPIC, *commands]
    close = difflib.get_close_matches(words.replace(" ", "-").lower(), known)
    similar = f"; similar: {', '.join(close)}" if close else ""
    naming = _pages_with(words)
    found = f"; pages with these words: {', '.join(naming)}" if naming else ""
    return f"{words!r} is neither a topic nor a command{similar}{found}. `logserver help` lists the topics"


def _pages_with(words: str) -> list[str]:
    """Return the topics whose pages have these words: pages of file formats first, then those with such a heading."""
    term = rf"\b{re.escape(words.strip().casefold())}"
    ranks = {}
    for topic, path in pages().items():
        text = path.read_text("utf-8").casefold()
        if count := len(re.findall(term, text)):
            has_heading = re.search(rf"^#.*{term}", text, re.MULTILINE) is not None
            ranks[topic] = (path.parent.name == FORMATS, has_heading, count)
    return sorted(ranks, key=ranks.__getitem__, reverse=True)[:MAX_FOUND]
