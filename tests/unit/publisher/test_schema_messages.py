"""Messages that functions of an earlier version have left in the log mean what those of this version do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tranrepl.model.position import FIRST_POSITION
from tranrepl.publisher.announcements import OwnChanges, TableAnnouncement
from tranrepl.publisher.postgres.schema_messages import read_announcements, read_content
from tranrepl.publisher.postgres.user_types import ENUMERATED_FORM

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
_OLDER, _NEW = {"oid": 11, "name": "part one", "attached": "744"}, {"oid": 12, "name": "b", "attached": "745"}
_VERSION_3: dict[str, Any] = {"v": 3, "oid": "10", "kept_values": None, "labels": None}
_PLACE: dict[str, Any] = {"schema": "a side", "kind": "r", "parent": 10, "key": None}


def _read(**told: object) -> list[object]:
    return list(read_announcements(json.dumps(_ROOT | told).encode(), "tranrepl_test", FIRST_POSITION))


_ARRAYS = {
    "children": ["12", "11"],
    "parents": ["10", "10"],
    "attached": ["745", "744"],
    "oids": ["11", "12"],
    "kinds": ["r", "r"],
    "schemas": ['"a side"', '"a side"'],
    "names": ["part one", "b"],
}
_TOLD_ANEW = {"empty": True, "bound": _BOUND}
_BY_THEMSELVES = [_PLACE | _OLDER | {"empty": None, "bound": None}, _PLACE | _NEW | _TOLD_ANEW]


def test_partitions_in_arrays_are_those_that_version_1_told_by_themselves() -> None:
    read = _read(v=1, partitions=_BY_THEMSELVES)
    assert "part one" in repr(read)
    places = {"places": ["12 10 745 r", "11 10 744 r"], "schemas": ["a side"] * 2, "names": ["b", "part one"]}
    assert _read(v=2, partitions=places, definitions=[{"oid": 12, "key": None} | _TOLD_ANEW]) == read
    definitions = [{"oid": "12", "key": None} | _TOLD_ANEW]
    assert _read(**_VERSION_3, **_ARRAYS, definitions=definitions) == read


def test_a_table_without_partitions_has_none_in_any_version() -> None:
    none = {"places": None, "schemas": None, "names": None}
    read = _read(v=1, partitions=None)
    assert _read(v=2, partitions=none, definitions=None) == read
    assert _read(**_VERSION_3, **dict.fromkeys(_ARRAYS), definitions=None) == read


def test_a_child_that_is_no_table_any_more_is_no_partition() -> None:
    gone = _ARRAYS | {it: _ARRAYS[it][:1] for it in ("oids", "kinds", "schemas", "names")}
    read = _read(**_VERSION_3, **gone, definitions=None)
    assert read == _read(v=1, partitions=[_PLACE | _OLDER | {"empty": None, "bound": None}])


def test_a_column_is_told_alike_in_all_versions() -> None:
    column = {"num": 1, "name": "a", "mod": -1, "notnull": True, "generated": "", "ident": "", "default": None}
    before = column | {
        "type": "text",
        "oid": 25,
        "collation": None,
        "types": [],
        "has_missing": True,
        "missing": 'b "c"',
    }
    after = column | {
        "type": "text",
        "oid": "25",
        "attcollation": "100",
        "has_missing": True,
        "missing": '{"b \\"c\\""}',
    }
    kept = after | {"has_missing": False, "missing": None}
    read = _read(v=1, columns=[before], partitions=None)
    plain = _VERSION_3 | dict.fromkeys(_ARRAYS) | {"definitions": None}
    assert _read(**plain | {"columns": [after]}) == read
    assert _read(**plain | {"columns": [kept], "kept_values": {"a": after["missing"]}}) == read


def test_labels_are_told_by_themselves_and_in_any_order() -> None:
    types = [{"oid": 16400, "name": "public.mood", "labels": ["a", "b"], "form": ENUMERATED_FORM}]
    column = {"num": 1, "name": "a", "type": "public.mood", "mod": -1, "notnull": True, "generated": "", "ident": ""}
    told = column | {"default": None, "has_missing": False, "missing": None}
    before = told | {"oid": 16400, "collation": None, "types": types}
    after = told | {"oid": "16400", "attcollation": "0"}
    labels = [["16400", 1.5, "b"], ["16401", 1, "other"], ["16400", 1, "a"]]
    plain = _VERSION_3 | dict.fromkeys(_ARRAYS) | {"definitions": None, "columns": [after], "labels": labels}
    assert _read(**plain) == _read(v=1, columns=[before], partitions=None)


@pytest.mark.parametrize(
    ("oid", "told", "collation"),
    [("23", "0", None), ("25", "100", None), ("25", "950", 950), ("19", "950", None), ("19", "100", 100)],
)
def test_a_collation_is_told_where_it_is_not_that_of_its_type(oid: str, told: str, collation: int | None) -> None:
    column = {"num": 1, "name": "a", "type": "t", "oid": oid, "attcollation": told, "missing": None}
    content = _ROOT | _VERSION_3 | dict.fromkeys(_ARRAYS) | {"definitions": None, "columns": [column]}
    assert read_content(json.dumps(content).encode())["columns"][0]["collation"] == collation


_HALF = 2**31


@pytest.mark.parametrize(
    ("began", "older", "own"),
    [(745, (3, 744), (745, 746)), (2**32 + 5, (2**32 - 1, 4), (5, 6)), (2**32 - 1, (2**32 - 2, _HALF), (2**32 - 1, 3))],
)
def test_what_is_its_transactions_own_is_told_by_numbers_as_by_name(
    began: int, older: tuple[int, int], own: tuple[int, int]
) -> None:
    column = {"type": "text", "oid": "25", "mod": -1, "attcollation": "100", "notnull": True, "generated": ""}
    column |= {"ident": "", "default": None, "missing": None, "dropped": False, "age": 1, "default_age": None}
    unique = {"primary": False, "immediate": True, "partial": False, "identity": False, "columns": [1]}
    plain = _VERSION_3 | dict.fromkeys(_ARRAYS) | {"definitions": None, "snapshot": f"{began}:{began}:"}
    columns = [column | {"num": n, "name": f"c{n}", "xmin": str(it)} for n, it in enumerate((*older, *own), 1)]
    indexes = [unique | {"oid": str(n), "name": f"i{n}", "xmin": str(it)} for n, it in enumerate((*older, *own), 1)]
    told = plain | {"v": 5, "xact": str(began), "xmin": str(own[0]), "columns": columns, "unique": indexes}
    named = [{**it, "own": n > len(older)} for n, it in enumerate(indexes, 1)]
    assert _read(**told) == _read(**told | {"v": 4, "own": [0, 3, 4], "unique": named})
    seen_by_all = told | {"xact": str(began - 1)}
    assert _read(**seen_by_all) == _read(**seen_by_all | {"v": 4, "own": None})


def test_a_table_that_its_transaction_left_alone_is_not_its_own() -> None:
    plain = _VERSION_3 | dict.fromkeys(_ARRAYS) | {"definitions": None, "v": 5}
    (announced,) = _read(**plain, xmin="744")
    assert isinstance(announced, TableAnnouncement)
    assert announced.own == OwnChanges(table=False, columns=frozenset(), unique=frozenset())


def test_a_table_without_a_schema_is_no_announcement() -> None:
    with pytest.raises(ValueError, match="table root without a schema"):
        _read(v=1, partitions=None, schema=None)
