"""What the text of a message of the event triggers says of a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tranrepl.model.position import FIRST_POSITION
from tranrepl.model.table_definition import DefinedType
from tranrepl.publisher.postgres.schema_messages import read_content, read_schema_message
from tranrepl.publisher.postgres.user_types import ENUMERATED_FORM
from tranrepl.schema.messages import AlteredTable

_BOUND = "FOR VALUES FROM (1) TO (2)"
_ROOT = {
    "event": "ddl_command_end",
    "tag": "CREATE TABLE",
    "xact": "745",
    "snapshot": "745:745:",
    "oid": 10,
    "schema": "public",
    "name": "root",
    "kind": "p",
    "persistence": "p",
    "identity": "d",
    "defaults_told": True,
    "key": "RANGE (id)",
    "columns": None,
    "unique": None,
}
_PLAIN: dict[str, Any] = {"v": 1, "oid": "10", "kept_values": None, "labels": None}


def _read(**told: object) -> AlteredTable:
    (announced,) = read_schema_message(json.dumps(_ROOT | _PLAIN | told).encode(), "tranrepl_test", FIRST_POSITION)
    assert isinstance(announced, AlteredTable)
    return announced


_ARRAYS = {
    "children": ["12", "11"],
    "parents": ["10", "10"],
    "attached": ["745", "744"],
    "oids": ["11", "12"],
    "kinds": ["r", "r"],
    "schemas": ['"a side"', '"a side"'],
    "names": ["part one", "b"],
}
_NONE = dict.fromkeys(_ARRAYS) | {"definitions": None}
_TOLD_ANEW = {"oid": "12", "key": None, "empty": True, "bound": _BOUND}


def _partitions(announced: AlteredTable) -> list[tuple[int, str, str, str | None, bool]]:
    division = announced.definition.division
    assert division is not None
    return [(it.object_id, str(it.table), it.attached, it.bound, it.empty) for it in division.partitions]


def test_partitions_in_arrays_are_read_by_their_oids() -> None:
    assert _partitions(_read(**_ARRAYS, definitions=[_TOLD_ANEW])) == [
        (11, '"a side"."part one"', "744", None, False),
        (12, '"a side".b', "745", _BOUND, True),
    ]


def test_a_table_without_partitions_has_none() -> None:
    assert _partitions(_read(**_NONE)) == []


def test_a_child_that_is_no_table_any_more_is_no_partition() -> None:
    gone = _ARRAYS | {it: _ARRAYS[it][:1] for it in ("oids", "kinds", "schemas", "names")}
    assert [it[0] for it in _partitions(_read(**gone, definitions=None))] == [11]


def test_the_value_of_rows_that_exist_is_read_wherever_it_is_kept() -> None:
    column = {"num": 1, "name": "a", "type": "text", "oid": "25", "mod": -1, "attcollation": "100", "notnull": True}
    column |= {"generated": "", "ident": "", "default": None}
    told = column | {"has_missing": True, "missing": '{"b \\"c\\""}'}
    kept = column | {"has_missing": False, "missing": None}
    assert _read(**_NONE, columns=[told]).existing_values == {1: 'b "c"'}
    kept_values = {"a": told["missing"]}
    assert _read(**_NONE | {"columns": [kept], "kept_values": kept_values}).existing_values == {1: 'b "c"'}


def test_labels_are_told_by_themselves_and_in_any_order() -> None:
    column = {"num": 1, "name": "a", "type": "public.mood", "mod": -1, "notnull": True, "generated": "", "ident": ""}
    column |= {"default": None, "has_missing": False, "missing": None, "oid": "16400", "attcollation": "0"}
    labels = [["16400", 1.5, "b"], ["16401", 1, "other"], ["16400", 1, "a"]]
    (read,) = _read(**_NONE | {"columns": [column], "labels": labels}).definition.columns
    assert read.types == (DefinedType(oid=16400, name="public.mood", labels=("a", "b"), form=ENUMERATED_FORM),)


@pytest.mark.parametrize(
    ("oid", "told", "collation"),
    [("23", "0", None), ("25", "100", None), ("25", "950", 950), ("19", "950", None), ("19", "100", 100)],
)
def test_a_collation_is_told_where_it_is_not_that_of_its_type(oid: str, told: str, collation: int | None) -> None:
    column = {"num": 1, "name": "a", "type": "t", "oid": oid, "attcollation": told, "missing": None}
    content = _ROOT | _PLAIN | _NONE | {"columns": [column]}
    assert read_content(json.dumps(content).encode())["columns"][0]["collation"] == collation


def test_columns_of_its_transaction_are_its_own_at_repeatable_read() -> None:
    column = {"type": "text", "oid": "25", "mod": -1, "attcollation": "100", "notnull": True, "generated": ""}
    column |= {"ident": "", "default": None, "missing": None, "dropped": False, "xmin": "700", "default_age": None}
    ages = {1: [5], 2: [0], 3: [5, -1]}
    columns = [column | {"num": n, "name": f"c{n}_{it}", "age": it} for n, found in ages.items() for it in found]
    read = _read(**_NONE | {"xmin": "700", "columns": columns})
    assert (read.altered, [it.name for it in read.definition.columns]) == (frozenset({2, 3}), ["c1_5", "c2_0", "c3_-1"])


def test_a_table_without_a_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="table root without a schema"):
        _read(**_NONE, schema=None)


def test_a_message_of_another_version_is_none_of_ours() -> None:
    with pytest.raises(ValueError, match="version 2"):
        _read(**_NONE, v=2)
