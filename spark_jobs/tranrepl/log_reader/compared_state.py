"""The state in which tables and articles were found alike: where it is the same one, they need not be compared again.
Thousands of articles take seconds to read and to compare."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256

from tranrepl import __version__
from tranrepl.log_reader.opening import OpenLogReader
from tranrepl.model.article import RegisteredArticle
from tranrepl.settings.publication import Publication


@dataclass(frozen=True, slots=True)
class ComparedState:
    """The articles as they are registered, before they are read to be compared."""

    opened: OpenLogReader
    publication: Publication
    state: str

    @classmethod
    def now(cls, opened: OpenLogReader, publication: Publication) -> ComparedState:
        return cls(opened, publication, opened.database.articles.state(opened.record))

    def with_tables(self) -> str | None:
        """Return a digest of all that a comparison with the tables depends on, as these are now; None where the
        Publisher does not say in short how they are."""
        with ThreadPoolExecutor(1) as server:
            asked = server.submit(self.opened.publisher.catalogue_state)
            # Meanwhile: of thousands of articles, each takes a good part of a tenth of a second.
            settings = self.publication.model_dump_json(exclude_defaults=True)
        catalogue = asked.result()
        if catalogue is None:
            return None
        parts = (__version__, settings, self.state, self.opened.record.read_from, catalogue)
        return sha256(repr(parts).encode()).hexdigest()

    def found_alike(self, state: str | None, articles: Iterable[RegisteredArticle]) -> None:
        """Register a state, of before the comparison, in which there was no difference.

        Not where the next comparison has something to do all the same: what has the former name of a renamed table is
        asked about each time, and partitions that are gone are forgotten once the log was read.
        """
        if state is not None and not any(map(_is_to_be_asked_about, articles)):
            self.opened.database.publications.set_compared(self.opened.record, state)


def _is_to_be_asked_about(article: RegisteredArticle) -> bool:
    partitions = article.source_file.partitions if article.source_file is not None else None
    return article.source != article.file_names.source or any(it.gone for it in (partitions or {}).values())
