"""Types of a database's users as a message tells them, in the form in which setup describes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import md5
from operator import itemgetter
from typing import Any

from tranrepl.publisher.postgres.user_types import ENUMERATED_FORM, FIRST_OWN_TYPE


@dataclass(frozen=True, slots=True)
class CapturedTypes:
    """What a message tells of the types of a table's columns."""

    labels: Mapping[int, list[str]]
    """The labels of enumerated types in their order, by the types' oids."""
    types: Mapping[int, Mapping[str, Any]]
    """Rows of pg_type by their oids. None of them where all of the columns' own types are enumerated."""
    checks: Mapping[int, list[str]]
    """Hashes of the checks of domains, by the domains' oids."""
    attributes: Mapping[int, list[tuple[int, int, int]]]
    """Numbers, types and modifiers of the attributes of composite types, by the oids of the types' relations."""
    subtypes: Mapping[int, int]
    """What ranges and multiranges are of, by their oids."""

    def collation_of(self, oid: int, usual: int) -> int:
        """Return the collation of a type whose columns name none: `usual` where the type is not captured."""
        return int(self.types[oid]["typcollation"]) if oid in self.types else usual

    def of_column(self, oid: int, name: str) -> list[dict[str, Any]] | None:
        """Return what a column's type is made of, by the types' oids: itself too, and none of PostgreSQL's own. None
        where it is not captured, as of a type that a transaction at REPEATABLE READ does not see."""
        if oid < FIRST_OWN_TYPE:
            return []
        if not self.types and oid in self.labels:
            return [{"oid": oid, "name": name, "labels": self.labels[oid], "form": ENUMERATED_FORM}]
        made_of, found = {oid}, [oid]
        while found:
            at = found.pop()
            if at not in self.types:
                return None
            found += [it for it in self._parts(at) if it >= FIRST_OWN_TYPE and it not in made_of]
            made_of.update(found)
        return [self._as_described(it) for it in sorted(made_of)]

    def _parts(self, oid: int) -> list[int]:
        it = self.types[oid]
        attributes = [of for _, of, _ in self.attributes.get(int(it["relation"]), ())]
        return [int(it["element"]), int(it["base"]), self.subtypes.get(oid, 0), *attributes]

    def _as_described(self, oid: int) -> dict[str, Any]:
        return {
            "oid": oid,
            "name": self.types[oid]["name"],
            "labels": self.labels.get(oid),
            "form": self._form(oid),
        }

    def _form(self, oid: int) -> str:
        """Return the hash that TYPES_OF_COLUMN makes in SQL."""
        it = self.types[oid]
        parts = [it["kind"], it["base"], str(it["mod"]), "t" if it["notnull"] else "f"]
        if oid in self.checks:
            parts.append(",".join(sorted(self.checks[oid])))
        attributes = self.attributes.get(int(it["relation"]))
        if attributes:
            parts.append(",".join(f"{of}:{modifier}" for _, of, modifier in sorted(attributes)))
        return md5("|".join(parts).encode(), usedforsecurity=False).hexdigest()


def read_types(captured: dict[str, Any]) -> CapturedTypes:
    """Return what is captured of types, and remove it from the message."""
    checks: dict[int, list[str]] = defaultdict(list)
    for oid, check in captured.pop("checks", None) or ():
        checks[int(oid)].append(check)
    attributes: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for relation, number, of, modifier in captured.pop("attributes", None) or ():
        attributes[int(relation)].append((number, int(of), modifier))
    subtypes = {int(it): int(of) for *ranges, of in captured.pop("ranges", None) or () for it in ranges}
    types = {int(it["oid"]): it for it in captured.pop("made_of", None) or ()}
    return CapturedTypes(_labels(captured.pop("labels", None) or ()), types, dict(checks), dict(attributes), subtypes)


def _labels(captured: Iterable[tuple[str, float, str]]) -> Mapping[int, list[str]]:
    labels: dict[int, list[str]] = defaultdict(list)
    for oid, _, label in sorted(captured, key=itemgetter(1)):
        labels[int(oid)].append(label)
    return dict(labels)
