"""Settings as they are registered, beside those of the publication's file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl import garbage_collection
from tranrepl.distributor.database.articles import read_articles
from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.tables import ArticleStatus
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article, Publication
from tranrepl.settings.registered_names import agrees, by_file_source, registered_names, with_registered

_SAME = ("ins_cmd", "upd_cmd", "del_cmd", "update_policy", "truncate")
_NOT_REGISTERED = "It is not registered: run tranrepl setup FILE"
_NOT_IN_FILE = "The file has it no more: run tranrepl setup FILE"
_ENDED = "It has ended: its table was dropped, or is published no more."
_MOST_ALIKE = 500
"""Articles that are shown though they match. Ten thousand were seconds of work, and a page that nobody reads."""
_Pair = tuple[Article | None, RegisteredArticle | None]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; None where a side has none."""

    setting: str
    registered: str | None
    in_file: str | None
    differs: bool


@dataclass(frozen=True, slots=True)
class ArticleSettings:
    """An article's settings. `problem`: why it is at one side only."""

    article: str
    differs: bool
    problem: str | None
    settings: Sequence[Setting]


@dataclass(frozen=True, slots=True)
class RegisteredSettings:
    """What is registered, beside the file as Airflow parsed it last."""

    publication: Sequence[Setting]
    """Its own, and its subscriptions."""
    articles: Sequence[ArticleSettings]
    """All that differ, and the first of those that match."""
    left_out: int
    """So many more match."""

    @property
    def differing(self) -> Sequence[ArticleSettings]:
        return [it for it in self.articles if it.differs]


@garbage_collection.paused()
def registered_settings(connection: sa.Connection, record: MonitoredRecord, file: Publication) -> RegisteredSettings:
    """Return the settings of both sides."""
    articles = read_articles(connection, record.publication_id, ArticleStatus.ACTIVE)
    ended = {it.source for it in read_articles(connection, record.publication_id, ArticleStatus.ENDED)}
    pairs = list(_pairs(articles, file))
    shown = list(_shown(pairs, ended))
    return RegisteredSettings(list(_publication(record, file)), shown, left_out=len(pairs) - len(shown))


def _publication(record: MonitoredRecord, file: Publication) -> Iterator[Setting]:
    yield _setting("distributor.store", record.store, file.distributor.store)
    yield Setting("Publisher's database", record.publisher_db, None, differs=False)
    yield Setting("name at the Publisher", record.log_name, None, differs=False)
    wanted = {it.name: it.connection for it in file.subscriptions}
    for it in record.subscriptions.values():
        text = f"{it.status}, database {it.subscriber_db}"
        name = wanted.pop(it.subscription, None)
        in_file = None if name is None else f"connection {name}"
        yield Setting(f"subscription {it.subscription}", text, in_file, differs=name is None)
    for name, connection_id in wanted.items():
        yield Setting(f"subscription {name}", None, f"connection {connection_id}", differs=True)


def _setting(name: str, registered: str, in_file: str) -> Setting:
    return Setting(name, registered, in_file, differs=in_file != registered)


def _pairs(registered: Sequence[RegisteredArticle], file: Publication) -> Iterator[_Pair]:
    """Yield each article of the file with what is registered of it, then what is registered alone."""
    left = {it.source: it for it in registered}
    known_to_file = by_file_source(registered)
    for article in with_registered(file, registered).articles:
        known = known_to_file.get(article.source)
        yield article, None if known is None else left.pop(known.source, None)
    yield from ((None, known) for known in left.values())


def _shown(pairs: Iterable[_Pair], ended: Collection[TableName]) -> Iterator[ArticleSettings]:
    alike = 0
    for article, known in pairs:
        if article is not None and agrees(article, known):
            alike += 1
            if alike > _MOST_ALIKE:
                continue
        if known is not None:
            settings = list(_compared(known, article))
            differs = article is None or any(it.differs for it in settings)
            yield ArticleSettings(str(known.source), differs, None if article else _NOT_IN_FILE, settings)
        elif article is not None:
            has_ended = article.source in ended
            problem = _ENDED if has_ended else _NOT_REGISTERED
            yield ArticleSettings(str(article.source), not has_ended, problem, settings=())


def _compared(known: RegisteredArticle, article: Article | None) -> Iterator[Setting]:
    """Yield the settings. A file may name things as they were when setup read it, or as they are now."""
    now = registered_names(known)
    before = known.file_names or now
    values: Mapping[str, tuple[object, object, Sequence[object]]] = {
        "source": (known.source, article and article.source, [before.source]),
        "destination": (known.destination, article and article.destination_table, []),
        "destinations": (_places(dict(known.destinations)), article and _places(article.destinations), []),
        **{name: (getattr(known, name), article and getattr(article, name), []) for name in _SAME},
        "filter": (known.filter, article and article.filter, [before.filter]),
    }
    for name, (registered, in_file, also) in values.items():
        differs = article is not None and in_file not in (registered, *also)
        yield Setting(name, _text(registered), _text(in_file), differs)
    for name in ("columns", "lob_columns"):
        wanted = None if article is None else getattr(article, name)
        accepted = [set(getattr(it, name) or ()) for it in (now, before)]
        differs = wanted is not None and set(wanted) not in accepted
        yield Setting(name, _listed(getattr(now, name)), _listed(wanted or ()), differs)


def _places(destinations: Mapping[str, TableName]) -> str | None:
    return ", ".join(f"{name}: {table}" for name, table in sorted(destinations.items())) or None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _listed(names: Iterable[str]) -> str | None:
    return ", ".join(names) or None
