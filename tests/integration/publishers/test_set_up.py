"""What setup creates is created once, removed without a trace, and refused with a remedy where it cannot be created."""

from __future__ import annotations

import pytest

from support.publishers import PublisherSite
from tranrepl.errors import ConfigurationError
from tranrepl.settings.publication import Article


def test_a_server_that_can_publish_has_no_problems(site: PublisherSite) -> None:
    site.server.create("t")
    with site.opened() as publisher:
        described = site.described(publisher, "t")
        assert [*publisher.problems(), *publisher.warnings(None)] == []
        assert list(publisher.right_problems(described, [site.server.table("t")])) == []


def test_set_up_again_does_nothing(site: PublisherSite) -> None:
    site.server.create("t")
    assert site.set_up("t")
    after, kept = site.server.catalogue(), None
    with site.opened() as publisher:
        kept = publisher.kept_from()
    assert site.set_up("t") == []
    with site.opened() as publisher:
        assert publisher.kept_from() == kept
    assert site.server.catalogue() == after


def test_an_article_that_joins_is_read_from_then_on(site: PublisherSite) -> None:
    site.server.create("t")
    site.server.create("u")
    site.set_up("t")
    site.set_up("t", "u")
    site.server.execute("INSERT INTO u VALUES (1, 'x', NULL)", "INSERT INTO t VALUES (1, 'x', NULL)")
    with site.opened() as publisher:
        assert [it.table for it in site.read(publisher)] == ["u", "t"]


def test_teardown_leaves_the_server_as_it_was(site: PublisherSite) -> None:
    site.server.create("t")
    before = site.server.catalogue()
    with site.opened() as publisher:
        object_ids = [table.object_id for _, table in site.described(publisher, "t")]
        remembered = publisher.old_row_settings(object_ids)
    done: list[str] = []
    site.set_up("t", **site.server.whole_old_rows)
    assert site.server.catalogue() != before
    with site.opened() as publisher:
        publisher.require_no_reader()
        removal = publisher.find_removal(object_ids, remembered, "not known")
        assert removal.removed
        publisher.remove(removal, done.append)
        assert (len(done), removal.stays) == (len(removal.removed), ())
        assert publisher.find_removal(object_ids, remembered, "not known").removed == ()
    assert site.server.catalogue() == before


def test_two_publications_of_one_database_have_names_of_their_own(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    with site.opened() as publisher:
        said = publisher.abandoned("another server", publisher.name, whole=True)
    assert publisher.name in said
    assert "another server" in said


def test_a_table_without_a_key_is_refused_with_the_remedy(site: PublisherSite) -> None:
    site.server.create("t", key=False)
    with site.opened() as publisher:
        ((article, table),) = site.described(publisher, "t")
        (problem,) = publisher.article_problems(article, table)
    assert "primary key" in problem.message
    assert (problem.report.remedy or "").startswith(f"ALTER TABLE {site.server.table('t')} ADD PRIMARY KEY")


def test_a_table_that_is_not_there_is_told_with_the_likeliest_one(site: PublisherSite) -> None:
    site.server.create("vendor")
    with site.opened() as publisher:
        assert publisher.describe([site.server.table("vendors")]) == {}
        problem = publisher.no_such_table(site.server.table("vendors"))
    assert f"did you mean {site.server.table('vendor')}?" in (problem.report.remedy or "")


def test_columns_and_filters_that_cannot_be_are_refused_with_what_can(site: PublisherSite) -> None:
    site.server.create("t")
    for settings, word in (
        ({"columns": ["id", "nome"]}, "name"),
        ({"columns": ["name"]}, "id"),
        ({"filter": "no_such_column = 1"}, "note"),
    ):
        with site.opened() as publisher:
            article = Article.model_validate({"source": site.server.table("t"), **settings})
            (table,) = publisher.describe([article.source]).values()
            problems = list(publisher.article_problems(article, table))
        assert problems
        assert any(word in f"{it}" for it in problems)
        assert all(it.report.remedy for it in problems)


def test_a_table_that_changed_since_it_was_set_up_is_refused(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    with site.opened() as publisher:
        (file,) = publisher.files(site.articles).values()
        assert file == publisher.files(site.articles)[site.articles[0].source_object_id]
        assert publisher.logs_what_is_needed(site.articles[0])
        assert publisher.table_bytes(site.articles[0]) >= 0
    site.server.execute("ALTER TABLE t DROP COLUMN note")
    with site.opened() as publisher, pytest.raises(ConfigurationError, match="note"):
        publisher.files(site.articles)
