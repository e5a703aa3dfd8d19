"""Reading a publication file: each mistake in it is reported in the file's own words, with its line."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from support.example_counts import examples
from support.example_publication import EXAMPLE
from tranrepl.errors import ConfigurationError
from tranrepl.settings.loading import load_publication
from tranrepl.settings.publication import Publication

GOOD = """\
publication: purchasing
publisher: {connection: publisher}
distributor: {connection: distribution, store: /var/lib/tranrepl}
schedule: "*/5 * * * *"
articles:
- source: public.vendor
- source: public.orders
  columns: [id, name]
subscriptions:
- name: reporting
  connection: subscriber
"""
_INTERNALS = re.compile(
    r"pydantic|Undefined|validation error|validator|[Ii]nput should|type=|https?:|Trace|object at 0x|<class|Error\b|"
    r"default factory|unicode string|instance of|ConstructorNode|ScalarNode|tag:yaml|NoneType|function-|dict|\blist\[",
)
"""No words of a file."""


def _written(folder: Path, text: str | bytes) -> Path:
    path = folder / "purchasing.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load_publication(path)
    assert _INTERNALS.search(str(refused.value)) is None, str(refused.value)
    return str(refused.value)


# What is replaced in the good file by what, and what is said: `LINE: message`, the file's name left out.
MISTAKES: dict[str, tuple[str, str, list[str]]] = {
    "key at the top": ("schedule:", "shedule:", ["4: shedule: unknown key; did you mean schedule? allowed: public"]),
    "key of an article": (
        "columns:",
        "colums:",
        ["8: articles[1].colums: unknown key; did you mean columns? allowed: source, destination, destinations,"],
    ),
    "key of a subscription": (
        "  connection: subscriber",
        "  conection: subscriber",
        ["11: subscriptions[0].conection: unknown key; did you mean connection? allowed: name, connection,"],
    ),
    "key of the Distributor": (
        "store:",
        "Store:",
        ["3: distributor.Store: unknown key; did you mean store? allowed: connection, store,"],
    ),
    "key of another place": (
        "columns: [id, name]",
        "sync_type: automatic",
        ["8: articles[1].sync_type: unknown key; it is a key of subscriptions[…], allowed: source,"],
    ),
    "key left out": (
        "  connection: subscriber\n",
        "",
        ["10: subscriptions[0].connection: missing; Airflow connection id of the Subscriber."],
    ),
    "section left out": (
        "publisher: {connection: publisher}\n",
        "",
        ["1: publisher: missing; allowed: a mapping with the keys connection, snapshot_timeout"],
    ),
    "enumeration": (
        "columns: [id, name]",
        "truncate: ignored",
        ["8: articles[1].truncate: 'ignored': did you mean ignore? allowed: replicate, ignore, error"],
    ),
    "one mistake is told once": (
        "  connection: subscriber",
        "  connection: subscriber\n  apply: bulk",
        ["12: subscriptions[0].apply: 'bulk': allowed: auto, serial"],
    ),
    "text for a list": (
        "columns: [id, name]",
        "columns: id, name",
        ["8: articles[1].columns: 'id, name': allowed: a list, not empty"],
    ),
    "list for a mapping": (
        "publisher: {connection: publisher}",
        "publisher: [publisher]",
        ["2: publisher: a list: allowed: a mapping with the keys connection, snapshot_timeout"],
    ),
    "nothing for a mapping": (
        "publisher: {connection: publisher}",
        "publisher:",
        ["2: publisher: nothing: allowed: a mapping with the keys connection,"],
    ),
    "number for a table": ("public.vendor", "5", ["6: articles[0].source: 5: allowed: schema.table"]),
    "table without a schema": (
        "public.vendor",
        "vendor",
        ["6: articles[0].source: 'vendor': allowed: schema.table, as in public.vendor"],
    ),
    "yes for a name": (
        "reporting",
        "on",
        ["10: subscriptions[0].name: true: allowed: text of 1 to 40 characters"],
    ),
    "yes for a number": (
        "  connection: subscriber",
        "  connection: subscriber\n  subscription_streams: yes",
        ["12: subscriptions[0].subscription_streams: true: allowed: a whole number from 1 to 64"],
    ),
    "text for yes": (
        "  connection: subscriber",
        "  connection: subscriber\n  foreign_keys: maybe",
        ["12: subscriptions[0].foreign_keys: 'maybe': allowed: true, false"],
    ),
    "schedule: on": ('schedule: "*/5 * * * *"', "schedule: on", ["4: schedule: true: allowed: text"]),
    "schedule: no cron": (
        '"*/5 * * * *"',
        "daily",
        ["4: schedule: 'daily': allowed: a cron expression, as in \"*/5 * * * *\", or continuous"],
    ),
    "sexagesimal number": (
        'schedule: "*/5 * * * *"',
        "schedule: 12:30",
        ["4: schedule: '12:30': YAML reads it as the number 750; allowed: 750, or text: \"12:30\""],
    ),
    "octal number": (
        'schedule: "*/5 * * * *"',
        "latency_threshold: 0600",
        ["4: latency_threshold: '0600': YAML reads it as the number 384; allowed: 384,"],
    ),
    "huge number": (
        'schedule: "*/5 * * * *"',
        f"latency_threshold: {'9' * 6000}",
        ["4: latency_threshold: a number of 6000 digits; allowed: at most 30"],
    ),
    "large number": (
        'schedule: "*/5 * * * *"',
        "latency_threshold: 99999999999",
        ["4: latency_threshold: 99999999999: allowed: a whole number from 1 to 31,536,000"],
    ),
    "date": (
        "reporting",
        "2026-13-01",
        ["10: subscriptions[0].name: '2026-13-01': YAML reads it as a date; allowed: text in quotes, a number"],
    ),
    "key that is no text": ("schedule:", "on:", ['4: on: YAML reads this key as no text; allowed: "on"']),
    "key twice": (
        "  connection: subscriber",
        "  connection: subscriber\n  name: other",
        ["12: subscriptions[0].name: more than once, first in line 10; allowed: each once"],
    ),
    "section twice": (
        "subscriptions:",
        "articles:\n- source: public.other\nsubscriptions:",
        ["9: articles: more than once, first in line 5; allowed: each once"],
    ),
    "column twice": (
        "[id, name]",
        "[id, name, id]",
        ["8: articles[1]: columns: id more than once; allowed: each once"],
    ),
    "NUL": (
        "public.vendor",
        '"public.\\0"',
        ["6: articles[0].source: 'public.\\x00': holds a character that no database takes"],
    ),
    "anchor that contains itself": (
        "[id, name]",
        "&again [*again]",
        ["8: articles[1].columns[0]: a list: allowed: text"],
    ),
    "mistake behind an alias": (
        "- source: public.vendor\n- source: public.orders",
        "- &first {source: public.vendor, order: any}\n- <<: *first\n  source: public.orders",
        [
            "6: articles[0].order: 'any': allowed: transactions, own_article",
            "6: articles[1].order: 'any': allowed: transactions, own_article",
        ],
    ),
    "two mistakes": (
        "public.orders\n  columns:",
        "orders\n  column:",
        [
            "7: articles[1].source: 'orders': allowed: schema.table, as in public.orders",
            "8: articles[1].column: unknown key; did you mean columns? allowed: source",
        ],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line_and_what_was_meant(mistake: str, tmp_path: Path) -> None:
    before, after, said = MISTAKES[mistake]
    assert before in GOOD
    path = _written(tmp_path, GOOD.replace(before, after, 1))
    lines = _refusal(path).splitlines()
    if said[1:]:
        assert lines.pop(0) == f"{path}: {len(said)} mistakes"
    assert len(lines) == len(said), lines
    for line, part in zip(lines, said, strict=True):
        assert line.startswith(f"{path}:{part}"), line


# The same for what is not YAML, or no mapping: `message` and its remedy.
NOT_YAML: dict[str, tuple[str | bytes, str, str]] = {
    "empty file": ("", ": is empty; allowed: a mapping with the keys publication, publisher,", ""),
    "comments only": ("# nothing\n", ": is empty; allowed: a mapping", ""),
    "list at the top": ("- publication: x\n", ": holds no mapping; allowed: a mapping with the keys publication,", ""),
    "text": ("purchasing", ": holds no mapping", ""),
    "tab": ("publisher:\n\tconnection: x\n", ":2: not valid YAML: ", "indent with spaces, not with a tab"),
    "schedule without quotes": (
        "publication: x\nschedule: */5 * * * *\n",
        ":2: not valid YAML: while scanning an alias",
        'put a text that begins with * in quotes, as in schedule: "*/5 * * * *"',
    ),
    "macro without quotes": ("schedule: @daily\n", ":1: not valid YAML", "put a text that begins with it in quotes"),
    "open bracket": ("articles: [\n", ":2: not valid YAML", ""),
    "open quote": ("publication: 'x\n", ":1: not valid YAML", "a quote is closed by the same one"),
    "wrong column": ("publication: x\n schedule: y\n", ":2: not valid YAML: mapping values are not allowed", "colon"),
    "two documents": (f"{GOOD}---\n{GOOD}", ":12: not valid YAML", "a file holds one publication"),
    "key that is a list": ("? [a, b]\n: c\n", ":1: a key is a list or a mapping; allowed: text", ""),
    "tag": ("publication: !ENV NAME\n", ":1: publication: 'NAME': YAML reads it as a value of another kind, !ENV;", ""),
    "tag that does not fit": ("publication: !!bool ja\n", ":1: publication: 'ja': no bool; allowed: its tag left", ""),
    "tag of a list": ("articles: !!set {a, b}\n", ":1: articles: set: allowed: its tag left out", ""),
    "merge of text": ("<<: x\n", ":1: not valid YAML: expected a mapping or list of mappings for merging", ""),
    "control character": ("publication: x\nschedule: \x07\n", ":2: not valid YAML: character U+0007 is not", ""),
    "Latin 1": (b"publication: x\nschedule: caf\xe9\n", ":2: cannot be read: byte 0xe9 is not UTF-8", "save the file"),
    "UTF-16": (GOOD.encode("utf-16"), ":1: cannot be read: byte 0xff is not UTF-8", "save the file as UTF-8"),
    "nested and closed": (
        f"publication: {'[' * 500}{']' * 500}",
        ":1: not valid YAML: lists and mappings are nested",
        "",
    ),
    "nested in one line": ("- " * 99_999, ":1: not valid YAML: lists and mappings are nested too deeply", ""),
    "nested deeply": ("publication: " + "[" * 5000, ":1: not valid YAML: lists and mappings are nested too deeply", ""),
}


@pytest.mark.parametrize("mistake", NOT_YAML)
def test_a_file_that_is_no_mapping_in_yaml_is_told_with_its_line(mistake: str, tmp_path: Path) -> None:
    text, said, remedy = NOT_YAML[mistake]
    path = _written(tmp_path, text)
    refusal = _refusal(path)
    assert refusal.startswith(f"{path}{said}"), refusal
    assert remedy in refusal.partition("\n")[2], refusal


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    assert load_publication(_written(tmp_path, b"\xef\xbb\xbf" + GOOD.encode())).publication == "purchasing"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("purchasng.yaml", "there is no such file\ndid you mean {folder}/purchasing.yaml?"),
        ("purchasing", "there is no such file\ndid you mean {folder}/purchasing.yaml?"),
        ("purchasing.yml", "there is no such file\ndid you mean {folder}/purchasing.yaml?"),
        ("other.yaml", "there is no such file\nin {folder}: purchasing.yaml"),
        ("none/purchasing.yaml", "there is no such file\nthere is no folder {folder}/none either"),
        ("", "is a folder, not a file\nin {folder}: purchasing.yaml"),
        ("purchasing.yaml/x", "cannot be read: Not a directory"),
        ("x" * 300, "cannot be read: File name too long"),
    ],
)
def test_a_file_that_is_not_there_is_answered_with_those_that_are(name: str, said: str, tmp_path: Path) -> None:
    _written(tmp_path, GOOD)
    path = tmp_path / name
    assert _refusal(path) == f"{path}: {said.format(folder=tmp_path)}"


def test_a_bare_name_is_answered_with_the_publications_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".pre-commit-config.yaml").write_text("repos: []\n", encoding="utf-8")
    assert _refusal(Path("shop")) == "shop: there is no such file\nno file of a publication is in ."
    usual = Path("dags/publications/shop.yaml")
    usual.parent.mkdir(parents=True)
    usual.write_text("publication: shop\n", encoding="utf-8")
    assert _refusal(Path("shop")) == f"shop: there is no such file\ndid you mean {usual}?"


@contextmanager
def _as_an_ordinary_user() -> Iterator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    path = _written(tmp_path, GOOD)
    path.chmod(0)
    with _as_an_ordinary_user():
        refusal = _refusal(path)
    assert refusal == f"{path}: cannot be read: this user may not\nls -l {path} shows who may"


def test_a_password_is_not_repeated_wherever_it_stands(tmp_path: Path) -> None:
    uri = "postgres://me:s3 cret%21@db:5432/sales"
    for text in (
        GOOD.replace("connection: subscriber", f'connection: "{uri}"'),
        GOOD.replace("connection: subscriber", f'"{uri}": subscriber'),
        GOOD.replace("connection: subscriber", f"connection: {'x' * 50}{uri}"),
        GOOD.replace("[id, name]", f"['{uri}', '{uri}']"),
        GOOD + f"\t{uri}\n",
    ):
        assert "cret" not in _refusal(_written(tmp_path, text))


# Hypothesis draws words of the code too, which a message may repeat as what the file says.
_TEXT = st.text(max_size=12).filter(lambda it: _INTERNALS.search(it) is None)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    _TEXT,
    st.dates(),
    st.datetimes(),
    st.binary(max_size=4),
    st.sampled_from(["on", "no", "12:30", "*/5 * * * *", "public.t", "SQL", "auto", "a.b.c", '"', "0/0", "@daily"]),
)
_KEYS = st.sampled_from(["name", "source", "x"]) | st.text(max_size=5) | st.integers()
_NEW_KEYS = st.text(max_size=8) | st.sampled_from([*Publication.model_fields, "Source", "nam"])
_MARKS = ["\t", "*", "&a ", "<<: ", "? ", "- ", "!!int ", "{", '"', ": ", "---\n"]
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, it in children for place in _places(it, (*at, key)))]


@st.composite
def _mutated(draw: st.DrawFn) -> Any:
    """Return a good document in which some values were replaced, taken out, or joined by others."""
    document = {"all": copy.deepcopy(EXAMPLE)}
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(_places(document)[1:]))
        inside: Any = document
        for step in way:
            inside = inside[step]
        match draw(st.sampled_from(["replace", "remove", "join"])):
            case "replace":
                inside[last] = draw(_VALUES)
            case "remove" if len(way) > 0:
                del inside[last]
            case _ if isinstance(inside, list):
                inside.append(draw(_VALUES))
            case _:
                inside[draw(_NEW_KEYS)] = draw(_VALUES)
    return document.get("all")


def _loads_or_is_refused_clearly(path: Path) -> None:
    said = str(path)
    try:
        load_publication(path)
    except ConfigurationError as error:
        said = str(error)
    assert said.startswith(str(path))
    # A key that the file itself calls so is told as it stands there.
    text = path.read_text(encoding="utf-8", errors="replace")
    assert [it for it in _INTERNALS.findall(said) if it not in text] == [], said


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(document=_mutated())
def test_any_document_loads_or_is_refused_in_words_of_the_file(document: Any, tmp_path: Path) -> None:
    text = yaml.safe_dump(document, allow_unicode=True)
    _loads_or_is_refused_clearly(_written(tmp_path, text.encode(errors="ignore")))


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(0, len(GOOD)),
    length=st.integers(0, 12),
    text=_TEXT.map(lambda it: it[:6]) | st.sampled_from(_MARKS),
)
def test_any_text_loads_or_is_refused_in_words_of_the_file(at: int, length: int, text: str, tmp_path: Path) -> None:
    changed = GOOD[:at] + text + GOOD[at + length :]
    _loads_or_is_refused_clearly(_written(tmp_path, changed.encode(errors="ignore")))
