"""Messages that functions of an earlier version have left in the log mean what those of this version do."""

from __future__ import annotations

import json
from typing import Any

from tranrepl.model.position import FIRST_POSITION
from tranrepl.publisher.postgres.schema_messages import read_announcements

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
_PLACE: dict[str, Any] = {"schema": "aside", "kind": "r", "parent": 10, "key": None}


def _read(**told: object) -> list[object]:
    return list(read_announcements(json.dumps(_ROOT | told).encode(), "tranrepl_test", FIRST_POSITION))


def test_partitions_in_arrays_are_those_that_version_1_told_by_themselves() -> None:
    told_anew = {"empty": True, "bound": _BOUND}
    older = [_PLACE | _OLDER | {"empty": None, "bound": None}, _PLACE | _NEW | told_anew]
    arrays = {"places": ["12 10 745 r", "11 10 744 r"], "schemas": ["aside"] * 2, "names": ["b", "part one"]}
    read = _read(v=2, partitions=arrays, definitions=[{"oid": 12, "key": None} | told_anew])
    assert read == _read(v=1, partitions=older)
    assert "part one" in repr(read)


def test_a_table_without_partitions_has_none_in_either_version() -> None:
    none = {"places": None, "schemas": None, "names": None}
    assert _read(v=2, partitions=none, definitions=None) == _read(v=1, partitions=None)
