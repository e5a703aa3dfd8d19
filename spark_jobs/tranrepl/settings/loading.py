"""Reading a publication file (`dags/publications/<name>.yaml`): every mistake with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tranrepl.errors import ConfigurationError
from tranrepl.remedies import usual_file
from tranrepl.settings.mistakes import Location, Mistake, allowed_keys, describe, key_path, shown, without_login
from tranrepl.settings.publication import Publication
from tranrepl.spelling import likeliest

_ENDINGS = (".yaml", ".yml")
_TAG = "tag:yaml.org,2002:"
_TEXT = f"{_TAG}str"
_MERGE = f"{_TAG}merge"
_NUMBER = f"{_TAG}int"
_PLAIN = {_TEXT, _NUMBER, f"{_TAG}float", f"{_TAG}bool", f"{_TAG}null"}
_COLLECTIONS = {f"{_TAG}seq", f"{_TAG}map"}
_NO_PLAIN = {f"{_TAG}timestamp": "a date", f"{_TAG}value": "a default value"}
_MOST_DIGITS = 30
_DEEPEST = 1_000
_MOST_VALUES = 1_000_000
"""A few lines whose aliases name aliases can be more values than any memory holds."""
_PUBLICATION = re.compile(rb"^[\"']?publication[\"']?\s*:", re.MULTILINE)
_IN_NO_DATABASE = re.compile("[\0\ud800-\udfff]")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_IN_QUOTES = 'put a text that begins with it in quotes, as in schedule: "*/5 * * * *"'
_HINTS = {
    "'\\t'": "indent with spaces, not with a tab",
    "'@'": _IN_QUOTES,
    "'`'": _IN_QUOTES,
    "'%'": _IN_QUOTES,
    "alias": _IN_QUOTES.replace("with it", "with *"),
    "mapping values are not allowed": "a text that holds a colon and a space stands in quotes",
    "could not find expected ':'": "a key is followed by a colon and a space",
    "expected <block end>": "keys of one mapping, and items of one list, begin in the same column",
    "expected ',' or": "a list in [ ] and a mapping in { } end with their bracket, and have commas between",
    "quoted scalar": "a quote is closed by the same one; a backslash is written twice in double quotes",
    "found another document": "a file holds one publication: no second ---",
}
"""What we say in place of YAML's own message, by words of it."""


def load_publication(path: Path) -> Publication:
    """Read and check one file.

    Raises ConfigurationError that names the file and, for each mistake, its line, the key, the value and what is
    allowed.
    """
    try:
        return _publication(path, _read(path))
    except RecursionError:
        raise _not_yaml(path, 1, "lists and mappings are nested too deeply") from None


@lru_cache(maxsize=4096)
def _publication(path: Path, text: str) -> Publication:
    """Return what the text says. It is kept: a DAG file builds several DAGs of each publication file of a folder."""
    root = _compose(path, text)
    if not isinstance(root, yaml.MappingNode):
        what = "is empty" if root is None else "holds no mapping"
        raise ConfigurationError(f"{path}: {what}; allowed: a mapping with the keys {allowed_keys()}")
    if _values(root, {}) > _MOST_VALUES:
        raise ConfigurationError(
            f"{path}: more than {_MOST_VALUES:,} values, with each alias (*name) written out; allowed: fewer aliases"
        )
    _refuse(path, root, list(_misread(root)))
    document = _construct(path, root)
    try:
        return Publication.model_validate(document)
    except ValidationError as error:
        _refuse(path, root, list(describe(error.errors(include_url=False))))
        raise ConfigurationError(f"{path}: not a publication") from None


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: there is no such file", remedy=_others(path)) from error
    except IsADirectoryError as error:
        raise ConfigurationError(f"{path}: is a folder, not a file", remedy=_inside(path)) from error
    except PermissionError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: this user may not", remedy=f"ls -l {path} shows who may"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        # A byte order mark, which some editors write, is no part of the text.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{path}:{line}: cannot be read: byte 0x{content[error.start]:02x} is not UTF-8",
            remedy="save the file as UTF-8",
        ) from None


def _others(path: Path) -> str:
    """Name the file that was meant, or those that are there."""
    folder = path.parent
    usual = Path(usual_file(path.stem))
    if folder == Path() and usual.is_file():
        return f"did you mean {usual}?"
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    names = _publications(folder)
    name = likeliest(path.name, names) or likeliest(f"{path.name}{_ENDINGS[0]}", names)
    if name is not None:
        return f"did you mean {folder / name}?"
    return _inside(folder)


def _inside(folder: Path) -> str:
    names = _publications(folder)
    return f"in {folder}: {', '.join(names)}" if names else f"no file of a publication is in {folder}"


def _publications(folder: Path) -> list[str]:
    try:
        return sorted(it.name for it in folder.iterdir() if it.suffix in _ENDINGS and _names_publication(it))
    except OSError:
        return []


def _names_publication(path: Path) -> bool:
    """Return whether a file looks like a publication's, which may be broken."""
    try:
        return _PUBLICATION.search(path.read_bytes()) is not None
    except OSError:
        return False


def _compose(path: Path, text: str) -> yaml.Node | None:
    root: yaml.Node | None
    if yaml.__with_libyaml__ and _is_shallow(text):
        with suppress(yaml.YAMLError):
            # Sixteen times as fast. What is wrong is for the other loader to say, in words that we know.
            root = yaml.compose(text, yaml.CSafeLoader)
            return root
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _not_yaml(path, line, f"character U+{error.character:04X} is not allowed") from None
    except yaml.MarkedYAMLError as error:
        # What is not closed is reported where it was opened.
        unclosed = "end of stream" in (error.problem or "") or "<stream end>" in (error.problem or "")
        marks = [error.problem_mark, error.context_mark]
        mark = next((it for it in (reversed(marks) if unclosed else marks) if it is not None), None)
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise _not_yaml(path, mark.line + 1 if mark else 1, said) from None
    return root


def _is_shallow(text: str) -> bool:
    """Return whether nothing in it can be nested so deeply that libyaml's loader crashes: it counts no levels. A level
    is a bracket, or begins in a column of its own."""
    return max(map(len, text.splitlines()), default=0) + text.count("[") + text.count("{") < _DEEPEST


def _not_yaml(path: Path, line: int, said: str) -> ConfigurationError:
    hint = next((hint for words, hint in _HINTS.items() if words in said), None)
    return ConfigurationError(f"{path}:{line}: not valid YAML: {without_login(said)}", remedy=hint)


def _construct(path: Path, root: yaml.MappingNode) -> Any:
    """Construct the document. Merge keys are resolved in the nodes, too."""
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or root.start_mark
        raise _not_yaml(path, mark.line + 1, error.problem or "a value cannot be read") from None
    except (RecursionError, ValueError):
        raise _not_yaml(path, 1, "lists and mappings are nested too deeply") from None


def _refuse(path: Path, root: yaml.Node, mistakes: list[Mistake]) -> None:
    lines = sorted(((_line(root, it.location), without_login(it.text)) for it in mistakes), key=itemgetter(0))
    if lines:
        each = [f"{path}:{line}: {text}" for line, text in lines]
        heading = [f"{path}: {len(lines)} mistakes"] if each[1:] else []
        raise ConfigurationError("\n".join([*heading, *each]))


def _line(root: yaml.Node, location: Location) -> int:
    """Return the line of the key, or of the nearest enclosing one that the file has."""
    node, line = root, root.start_mark.line
    for part in location:
        found = _inner(node, part)
        if found is None:
            break
        line, node = found
    return line + 1


def _inner(node: yaml.Node, part: int | str) -> tuple[int, yaml.Node] | None:
    """Return the line of a key or of an item, and its value."""
    if isinstance(node, yaml.MappingNode):
        # Of a merged mapping's key and the mapping's own, the own one comes last.
        found = [(key.start_mark.line, value) for key, value in node.value if key.value == part]
        return found[-1] if found else None
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None


def _values(node: yaml.Node, counted: dict[int, int]) -> int:
    """Return how many values a node is, with each alias written out. `counted` has those of the nodes so far, by id."""
    if id(node) not in counted:
        # An alias may name a node that it is in: that is refused elsewhere.
        counted[id(node)] = 1
        children = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        if isinstance(node, yaml.CollectionNode):
            counted[id(node)] += sum(_values(it, counted) for it in children)
    return counted[id(node)]


def _misread(root: yaml.Node) -> Iterator[Mistake]:
    """Yield what YAML reads otherwise than it was meant, or not at all: keys written twice, of which it forgets the
    first, keys that are no text to it, numbers that are not decimal, text that no database takes."""
    seen: set[int] = set()
    left: list[tuple[Location, yaml.Node]] = [((), root)]
    while left:
        location, node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            problem = _misread_scalar(node)
            if problem is not None:
                yield Mistake(location, f"{key_path(location)}: {problem}")
        elif node.tag not in _COLLECTIONS:
            kind = node.tag.removeprefix(_TAG)
            yield Mistake(location, f"{key_path(location)}: {kind}: allowed: its tag left out".lstrip(": "))
        elif isinstance(node, yaml.SequenceNode):
            left += [((*location, at), it) for at, it in reversed(list(enumerate(node.value)))]
        elif isinstance(node, yaml.MappingNode):
            yield from _misread_keys(location, node)
            left += [((*location, str(key.value)), value) for key, value in reversed(node.value)]


def _misread_keys(location: Location, node: yaml.MappingNode) -> Iterator[Mistake]:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            yield Mistake(location, f"{key_path(location)}: a key is a list or a mapping; allowed: text".lstrip(": "))
            continue
        at = key_path((*location, key.value))
        if key.tag not in (_TEXT, _MERGE):
            yield Mistake((*location, key.value), f'{at}: YAML reads this key as no text; allowed: "{key.value}"')
        elif key.value in lines:
            yield Mistake(
                (*location, key.value), f"{at}: more than once, first in line {lines[key.value]}; allowed: each once"
            )
        lines.setdefault(key.value, line)


def _misread_scalar(node: yaml.ScalarNode) -> str | None:
    """Return what is wrong with a value; None where nothing is."""
    tag, value = node.tag, node.value
    if tag not in _PLAIN:
        what = _NO_PLAIN.get(tag, f"a value of another kind, {tag.removeprefix(_TAG)}")
        return f"{shown(value)}: YAML reads it as {what}; allowed: text in quotes, a number"
    if tag != _TEXT and _tag_of(value) != tag:
        return f"{shown(value)}: no {tag.removeprefix(_TAG)}; allowed: its tag left out"
    if tag == _NUMBER and len(value) > _MOST_DIGITS:
        return f"a number of {len(value)} digits; allowed: at most {_MOST_DIGITS}"
    if tag == _NUMBER and not _DECIMAL.fullmatch(value):
        number = yaml.safe_load(value)
        return f'{shown(value)}: YAML reads it as the number {number}; allowed: {number}, or text: "{value}"'
    if _IN_NO_DATABASE.search(value):
        return f"{value[:_MOST_DIGITS]!a}: holds a character that no database takes"
    return None


def _tag_of(text: str) -> str:
    """Return the tag that YAML gives to a text without quotes."""
    return str(yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]
