"""What a user writes: every mistake is named with its file, its key, its value and what is allowed."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import TypeAdapter

from support.example_publication import EXAMPLE
from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName, TableOrPattern, TablePattern
from tranrepl.settings.loading import load_publication
from tranrepl.settings.publication import Article, Publication, json_schema

Change = Callable[[dict[str, Any]], object]

_SOURCE: TypeAdapter[TableName] = TypeAdapter(TableOrPattern)


def _with_articles(articles: list[dict[str, Any]]) -> Publication:
    return Publication.model_validate({**EXAMPLE, "articles": articles})


def _written(folder: Path, document: object) -> Path:
    path = folder / "purchasing.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load_publication(path)
    return str(refused.value)


def test_the_example_is_read_as_it_stands(tmp_path: Path) -> None:
    publication = load_publication(_written(tmp_path, EXAMPLE))
    assert publication.model_dump(mode="json", exclude_unset=True) == EXAMPLE


def test_what_is_left_out_has_sql_servers_defaults() -> None:
    publication = Publication.model_validate(EXAMPLE)
    article, subscription = publication.articles[1], publication.subscriptions[0]
    assert [str(it) for it in (article.ins_cmd, article.upd_cmd, article.del_cmd)] == ["CALL", "SCALL", "CALL"]
    assert article.destination_table == article.source == TableName("purchasing", "orders")
    assert (subscription.model_fields_set, subscription.subscription_streams) == (
        {"name", "connection", "commit_batch_size", "commit_batch_threshold"},
        1,
    )


@pytest.mark.parametrize(("apply", "limits"), [("auto", (10_000, 100_000)), ("serial", (1_000, 10_000))])
def test_a_commit_batch_is_sized_for_how_it_is_applied(apply: str, limits: tuple[int, int]) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "apply": apply}
    settings = Publication.model_validate({**EXAMPLE, "subscriptions": [subscription]}).subscriptions[0]
    assert (settings.commit_batch_size, settings.commit_batch_threshold) == limits


def test_commands_is_the_earlier_name_of_serial_apply() -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "apply": "commands"}
    document = {**EXAMPLE, "subscriptions": [subscription]}
    settings = Publication.model_validate(document)
    assert settings == Publication.model_validate({**EXAMPLE, "subscriptions": [{**subscription, "apply": "serial"}]})
    assert '"apply":"serial"' in settings.model_dump_json()
    schema = json_schema()
    assert list(Draft202012Validator(schema).iter_errors(document)) == []
    current, earlier = schema["$defs"]["Apply"]["oneOf"]
    assert current == {"enum": ["auto", "serial"]}
    assert (earlier["const"], earlier["deprecated"]) == ("commands", True)


# A mistake, and what the message must say of it: key, value, what is allowed.
MISTAKES: dict[str, tuple[Change, list[str]]] = {
    "unknown key": (
        lambda it: it.update(publisherr={}),
        ["publisherr: unknown key; did you mean publisher? allowed: publication, publisher,"],
    ),
    "misspelt key of an article": (
        lambda it: it["articles"][1].update(colums=["a"]),
        ["articles[1].colums: unknown key; did you mean columns? allowed: source, destination, destinations,"],
    ),
    "misspelt key of a subscription": (
        lambda it: it["subscriptions"][0].update(stream=2),
        ["subscriptions[0].stream: unknown key; allowed: name, connection,"],
    ),
    "misspelt key of the log reader": (
        lambda it: it["log_reader"].update(batch=2),
        ["log_reader.batch: unknown key; allowed: read_batch_size, read_batch_bytes"],
    ),
    "misspelt key of the Publisher": (
        lambda it: it["publisher"].update(conection="x"),
        ["publisher.conection: unknown key; did you mean connection? allowed: connection"],
    ),
    "misspelt key of the Distributor": (
        lambda it: it["distributor"].update(folder="x"),
        ["distributor.folder: unknown key; allowed: connection, store"],
    ),
    "key left out": (lambda it: it["distributor"].pop("store"), ["distributor.store: missing"]),
    "table without a schema": (
        lambda it: it["articles"][1].update(source="vendor"),
        ["articles[1].source: 'vendor': allowed: schema.table, as in public.vendor"],
    ),
    "table that is a number": (
        lambda it: it["articles"][1].update(source=7),
        ["articles[1].source: 7: allowed: schema.table"],
    ),
    "destination with three parts": (
        lambda it: it["articles"][1].update(destination="a.b.c"),
        ["articles[1].destination: 'a.b.c': allowed: schema.table"],
    ),
    "MCALL of a DELETE": (
        lambda it: it["articles"][1].update(del_cmd="MCALL"),
        ["articles[1].del_cmd: 'MCALL': allowed: CALL, XCALL (each alone or with the name of a procedure), SQL, NONE"],
    ),
    "XCALL of an INSERT": (
        lambda it: it["articles"][1].update(ins_cmd="XCALL audit"),
        ["articles[1].ins_cmd: 'XCALL audit': allowed: CALL (each alone"],
    ),
    "NONE with a procedure": (
        lambda it: it["articles"][1].update(ins_cmd="NONE audit"),
        ["articles[1].ins_cmd: 'NONE audit': allowed: CALL (each alone"],
    ),
    "procedure of three parts": (
        lambda it: it["articles"][1].update(upd_cmd="MCALL a.b.c"),
        ["articles[1].upd_cmd: 'MCALL a.b.c': allowed: procedure or schema.procedure, a part with"],
    ),
    "unknown policy": (
        lambda it: it["articles"][1].update(update_policy="8207"),
        ["articles[1].update_policy: '8207': allowed: pairs, singleton_update, always_pairs"],
    ),
    "VCALL": (
        lambda it: it["articles"][1].update(upd_cmd="VCALL"),
        ["articles[1].upd_cmd: 'VCALL': VCALL is for SQL Server's internal use; allowed: CALL, SCALL, MCALL, XCALL ("],
    ),
    "VCALL with a procedure": (
        lambda it: it["articles"][1].update(del_cmd="VCALL sp_x"),
        ["articles[1].del_cmd: 'VCALL sp_x': VCALL is for SQL Server's internal use; allowed: CALL, XCALL ("],
    ),
    "call syntax of another operation": (
        lambda it: it["articles"][1].update(ins_cmd="SCALL"),
        ["articles[1].ins_cmd: 'SCALL': allowed: CALL (each alone or with the name of a procedure), SQL, NONE"],
    ),
    "command in lower case": (
        lambda it: it["articles"][1].update(upd_cmd="scall"),
        ["articles[1].upd_cmd: 'scall': did you mean SCALL? allowed: CALL, SCALL, MCALL, XCALL ("],
    ),
    "command that is no text": (
        lambda it: it["articles"][1].update(upd_cmd=["SQL"]),
        ["articles[1].upd_cmd: a list: allowed: CALL, SCALL, MCALL, XCALL ("],
    ),
    "replica identity": (
        lambda it: it["articles"][1].update(replica_identity="key"),
        ["articles[1].replica_identity: 'key': allowed: full, default"],
    ),
    "column twice": (
        lambda it: it["articles"][1].update(columns=["a", "b", "a"]),
        ["articles[1]: columns: a more than once; allowed: each once"],
    ),
    "no column": (
        lambda it: it["articles"][1].update(columns=[]),
        ["articles[1].columns: an empty list: allowed: a list, not empty"],
    ),
    "no article": (
        lambda it: it.update(articles=[]),
        ["articles: an empty list: allowed: a list of mappings with the keys source, destination,"],
    ),
    "article twice": (
        lambda it: it["articles"].append({"source": "purchasing.orders", "destination": "a.b"}),
        ["articles: source: purchasing.orders more than once; allowed: each once"],
    ),
    "destination twice": (
        lambda it: it["articles"].append({"source": "a.b", "destination": "purchasing.orders"}),
        ["articles: destination: purchasing.orders more than once"],
    ),
    "destination twice at one Subscriber": (
        lambda it: it["articles"][1].update(destinations={"reporting": 'reporting."Vendor list"'}),
        ['articles: destinations: reporting: reporting."Vendor list" more than once; allowed: each once'],
    ),
    "destination of another subscription": (
        lambda it: it["articles"][1].update(destinations={"mart": "mart.orders"}),
        ["articles: purchasing.orders: destinations: mart: there is no such subscription; allowed: reporting"],
    ),
    "subscription twice": (
        lambda it: it["subscriptions"].append({"name": "reporting", "connection": "other"}),
        ["subscriptions: name: reporting more than once"],
    ),
    "commit batch of nothing": (
        lambda it: it["subscriptions"][0].update(commit_batch_size=0),
        ["subscriptions[0].commit_batch_size: 0: allowed: a whole number from 1 to 1,000,000"],
    ),
    "streams": (
        lambda it: it["subscriptions"][0].update(subscription_streams=0),
        ["subscriptions[0].subscription_streams: 0: allowed: a whole number from 1 to 64"],
    ),
    "error that is not skippable": (
        lambda it: it["subscriptions"][0].update(skip_errors=[20598, 1205]),
        ["subscriptions[0].skip_errors[1]: 1205: not a data error; allowed: 220, 241"],
    ),
    "stream assignment": (
        lambda it: it["subscriptions"][0].update(stream_assignment="hash"),
        ["subscriptions[0].stream_assignment: 'hash': allowed: key, dependencies"],
    ),
    "publication's name": (
        lambda it: it.update(publication="my publication"),
        ["publication: 'my publication': allowed: letters, digits, _ and -"],
    ),
    "name that is too long": (
        lambda it: it.update(publication="p" * 41),
        [f"publication: '{'p' * 41}': allowed: text of 1 to 40 characters"],
    ),
    "connection id": (
        lambda it: it["publisher"].update(connection="a b"),
        ["publisher.connection: 'a b': allowed: a connection's id, of letters, digits, _, . and -"],
    ),
    "text where keys belong": (
        lambda it: it.update(publisher="publisher", articles=["public.t"]),
        [
            "publisher: 'publisher': allowed: a mapping with the keys connection",
            "articles[0]: 'public.t': allowed: a mapping with the keys source, destination",
        ],
    ),
    "run_for where runs end by themselves": (
        lambda it: it.update(schedule="*/5 * * * *", run_for=600),
        ["run_for: given with schedule: continuous, and only with it"],
    ),
    "polling_interval out of range": (
        lambda it: it.update(polling_interval=0),
        ["polling_interval: 0: allowed: a number above 0, 3,600 at most"],
    ),
    "yes for polling_interval": (
        lambda it: it.update(polling_interval=True),
        ["polling_interval: true: allowed: a number above 0, 3,600 at most"],
    ),
    "two mistakes": (
        lambda it: it.update(schedule=5, publication=""),
        ["schedule: 5: allowed: text", "publication: '': allowed: text of 1 to 40 characters"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_file_key_value_and_what_is_allowed(mistake: str, tmp_path: Path) -> None:
    change, said = MISTAKES[mistake]
    document = copy.deepcopy(EXAMPLE)
    change(document)
    path = _written(tmp_path, document)
    lines = _refusal(path).splitlines()
    if said[1:]:
        assert lines.pop(0) == f"{path}: {len(said)} mistakes"
    assert all(re.match(rf"{re.escape(str(path))}:\d+: ", line) for line in lines), lines
    assert all(any(part in line for line in lines) for part in said), lines
    assert len(lines) == len(said)


@pytest.mark.parametrize("key", ["publisher", "distributor"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_password_written_into_the_file_is_not_repeated(key: str, nested: bool, tmp_path: Path) -> None:
    uri = "postgres://me:s3cret%21@db:5432/sales"
    document = {**EXAMPLE, key: {**EXAMPLE[key], "connection": uri} if nested else uri}
    refusal = _refusal(_written(tmp_path, document))
    assert "s3cret" not in refusal
    assert f": {key}" in refusal


def test_an_unknown_subscription_is_answered_with_the_known_ones() -> None:
    publication = Publication.model_validate(EXAMPLE)
    assert publication.subscription("reporting").connection == "subscriber"
    with pytest.raises(ConfigurationError, match="no subscription 'other'") as refused:
        publication.subscription("other")
    assert refused.value.report.remedy == "allowed: reporting"


def test_errors_to_skip_are_named_by_either_number() -> None:
    document = copy.deepcopy(EXAMPLE)
    document["subscriptions"][0]["skip_errors"] = [2627, 23505, "23503", "P0001", 1062]
    publication = Publication.model_validate(document)
    assert publication.subscriptions[0].skip_errors == ["2627", "23505", "23503", "P0001", "1062"]
    assert Publication.model_validate(publication.model_dump(mode="json")) == publication


def test_connections_are_named_once() -> None:
    document = {**EXAMPLE, "subscriptions": [{"name": name, "connection": "publisher"} for name in ("a", "b")]}
    assert Publication.model_validate(document).connection_ids() == ["publisher", "distribution"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("purchasing.vendor", TableName("purchasing", "vendor")),
        ('Sales."Order Details"', TableName("Sales", "Order Details")),
        ('"a.b"."c""d"', TableName("a.b", 'c"d')),
        ("dbo.100%[x]{}", TableName("dbo", "100%[x]{}")),
        ('"plain".x', TableName("plain", "x")),
    ],
)
def test_a_table_is_named_as_in_sql_without_case_folding(text: str, name: TableName) -> None:
    assert TableName.parse(text) == name


@pytest.mark.parametrize("text", ["", "a", "a.", ".a", "a.b.c", "a b.c", '"a.b', 'a."b"c', '"".a', "a.b ", 'a"b.c'])
def test_other_text_names_no_table(text: str) -> None:
    with pytest.raises(ValueError, match=r"allowed: schema\.table"):
        TableName.parse(text)


_parts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(_parts, _parts)
def test_a_table_name_that_is_written_is_read_again(schema: str, table: str) -> None:
    name = TableName(schema, table)
    assert TableName.parse(str(name)) == name
    assert Article.model_validate_json(Article(source=name).model_dump_json()).source == name


def test_the_json_schema_agrees_with_the_settings() -> None:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert list(validator.iter_errors(EXAMPLE)) == []
    for mistake in ("unknown key", "misspelt key of an article", "VCALL", "key left out", "streams", "no article"):
        document = copy.deepcopy(EXAMPLE)
        MISTAKES[mistake][0](document)
        assert list(validator.iter_errors(document)), mistake


def test_the_json_schema_explains_every_key_that_has_a_default() -> None:
    definitions = json_schema()["$defs"]
    for model, keys in (("Article", Article.model_fields), ("LogReaderSettings", {"read_batch_size": None})):
        for key in keys:
            assert definitions[model]["properties"][key].get("description"), f"{model}.{key}"


def test_the_retention_is_sql_servers_and_in_order(tmp_path: Path) -> None:
    distributor = Publication.model_validate(EXAMPLE).distributor
    assert (distributor.min_distretention, distributor.max_distretention, distributor.history_retention) == (0, 72, 48)
    wrong = {**EXAMPLE, "distributor": {**EXAMPLE["distributor"], "min_distretention": 73}}
    assert "min_distretention: 73: allowed: at most max_distretention, 72" in _refusal(_written(tmp_path, wrong))


def test_a_bucket_has_a_connection_and_a_path_has_none(tmp_path: Path) -> None:
    distributor = {**EXAMPLE["distributor"], "store": "s3://bucket/path", "store_connection": "store"}
    publication = Publication.model_validate({**EXAMPLE, "distributor": distributor})
    assert publication.distributor.connection_ids == [EXAMPLE["distributor"]["connection"], "store"]
    assert "store" in publication.connection_ids()
    wrong = {**EXAMPLE, "distributor": {**distributor, "store": "/path"}}
    assert "store_connection: a path needs none" in _refusal(_written(tmp_path, wrong))


@given(
    st.text("ab_*", min_size=1, max_size=6).filter(lambda it: "*" in it),
    st.lists(st.text("ab_.\n", min_size=1, max_size=6)),
)
def test_a_pattern_means_the_tables_that_a_shell_would_name(pattern: str, names: list[str]) -> None:
    source = _SOURCE.validate_python(f"sales.{pattern}")
    meant = [it for it in names if isinstance(source, TablePattern) and source.matches(TableName("sales", it))]
    assert meant == [it for it in names if fnmatchcase(it, pattern)]
    assert _SOURCE.validate_python(str(source)) == source


@given(st.text(min_size=1, max_size=6).filter(lambda it: "\0" not in it))
def test_a_name_with_a_star_is_a_table_where_it_stands_in_quotes(name: str) -> None:
    table = TableName("sales", name)
    assert _SOURCE.validate_python(str(table)) == table == TableName.parse(str(table))


def test_an_own_entry_counts_before_patterns_and_the_last_pattern_before_others() -> None:
    publication = _with_articles(
        [
            {"source": "sales.orders", "ins_cmd": "SQL", "destination": "public.o"},
            {"source": "sales.*", "del_cmd": "NONE", "destinations": {"reporting": "dbo.*"}},
            {"source": "sales.order_*", "exclude": ["sales.order_log"], "destination": "archive.*"},
        ]
    )
    tables = [TableName("sales", it) for it in ("orders", "order_items", "order_log", "customers")]
    named = publication.of_tables([*tables, TableName("hr", "people")])
    at = {
        str(it.source): (str(it.destination_table), str(it.at("reporting").destination_table)) for it in named.articles
    }
    assert at == {
        "sales.orders": ("public.o", "public.o"),
        "sales.customers": ("sales.customers", "dbo.customers"),
        "sales.order_items": ("archive.order_items", "archive.order_items"),
        "sales.order_log": ("sales.order_log", "dbo.order_log"),
    }
    assert [publication.article(it) for it in tables] == [named.article(it) for it in tables]
    assert publication.article(TableName("hr", "people")) is None
    assert Publication.model_validate_json(publication.model_dump_json()) == publication


@pytest.mark.parametrize(
    ("article", "said"),
    [
        ({"source": "sales.a", "exclude": ["sales.b"]}, "exclude: allowed where source is a pattern"),
        ({"source": "sales.a", "new_tables": "join"}, "new_tables: allowed where source is a pattern"),
        ({"source": "sales.a", "destination": "archive.*"}, "destination: archive.*; allowed: a table"),
        ({"source": "sales.*", "destination": "archive.a"}, "destination: archive.a; allowed: all tables of a schema"),
        ({"source": "sales.*", "destinations": {"reporting": "x.a*"}}, "destinations: reporting: x.a*; allowed: all"),
        ({"source": "*.a"}, "source: '*.a': allowed: schema.table, a part with"),
        ({"source": "*"}, "source: '*': allowed: schema.table, a part with"),
    ],
)
def test_patterns_that_are_refused(tmp_path: Path, article: dict[str, Any], said: str) -> None:
    refusal = _refusal(_written(tmp_path, {**EXAMPLE, "articles": [article]}))
    assert said in refusal
