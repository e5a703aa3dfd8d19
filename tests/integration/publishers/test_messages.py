"""Messages of ours are read at their places in the log, by the publication that they are of."""

from __future__ import annotations

from support.publishers import NO_LIMITS, PublisherSite, changes_of
from tranrepl.model.commands import Operation
from tranrepl.model.script import Script
from tranrepl.model.tracer_token import TracerToken
from tranrepl.publisher.log_range import LogPart, SchemaReading
from tranrepl.publisher.publisher import Publisher
from tranrepl.publisher.registry import open_publisher

_DIGEST, _LATER = "d" * 64, "e" * 64


def _parts(site: PublisherSite, publisher: Publisher, *pending: str, scripts: tuple[str, ...] = ()) -> list[LogPart]:
    log = publisher.log_range(
        site.articles,
        site.start(publisher),
        publisher.end_of_log(),
        NO_LIMITS,
        schema=SchemaReading(definitions=pending),
        scripts=scripts,
    )
    return list(log.changes())


def _read(parts: list[LogPart]) -> list[str]:
    """Return the keys of rows that were inserted, and the texts of messages, in their order."""
    found: list[str] = []
    for part in parts:
        if part.changes is None:
            continue
        rows = [int(place) for it in part.changes.sets for place in it.places]
        inserted = dict(
            zip(sorted(rows), [(it.after or ("",))[0] or "" for it in changes_of(part.changes)], strict=True)
        )
        texts = {it.place: it.text for it in part.changes.messages}
        found += [text for _, text in sorted((inserted | texts).items())]
    return found


def test_messages_are_read_where_they_were_written(site: PublisherSite) -> None:
    site.server.create("t")
    with site.opened() as publisher:
        publisher.schema_changes.set_up()
        site.set_up("t")
        token = TracerToken.new(publisher.name)
        script, unknown = (Script(publication=publisher.name, name="a.sql", sql=it) for it in ("SELECT 1", "SELECT 2"))
        site.server.execute("INSERT INTO t VALUES (1, 'x', NULL)")
        publisher.post_token(token)
        site.server.execute("INSERT INTO t VALUES (2, 'x', NULL)")
        with open_publisher(site.server.connection, "another", "test") as another:
            another.post_token(TracerToken.new(another.name))
        publisher.write_script(unknown)
        publisher.write_script(script)
        site.server.execute("INSERT INTO t VALUES (3, 'x', NULL)")
        assert site.probe(publisher, publisher.end_of_log()).found_change
        parts = _parts(site, publisher, scripts=(script.digest,))
        assert _read(parts) == ["1", token.message, "2", script.message, "3"]
        assert [it for part in parts for it in part.notices if "a.sql" in it] != []
        operations = [it.operation for part in parts if part.changes is not None for it in part.changes.messages]
    assert operations == [Operation.TRACER_TOKEN, Operation.SCRIPT]


def test_a_reading_ends_before_a_definition_that_is_pending(site: PublisherSite) -> None:
    site.server.create("t")
    with site.opened() as publisher:
        publisher.schema_changes.set_up()
        site.set_up("t")
        site.server.execute("INSERT INTO t VALUES (1, 'x', NULL)")
        publisher.write_definitions(_DIGEST)
        site.server.execute("INSERT INTO t VALUES (2, 'x', NULL)")
        publisher.write_definitions(_LATER)
        assert _read(_parts(site, publisher)) == ["1", "2"]
        for pending, rows in (((_DIGEST, _LATER), ["1"]), ((_LATER,), ["1", "2"])):
            parts = _parts(site, publisher, *pending)
            assert (_read(parts), parts[-1].redefinition, parts[-1].needs_definitions) == (rows, pending[0], True)
