"""Tracer tokens at the log reader: those that are due by themselves, and those that it met."""

from __future__ import annotations

from datetime import timedelta

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, StoredToken
from tranrepl.errors import ConfigurationError
from tranrepl.log_reader.opening import OpenLogReader
from tranrepl.model.clock_difference import ClockDifference, moment_of
from tranrepl.model.tracer_token import TracerToken
from tranrepl.publisher.log_read import LogRead
from tranrepl.publisher.publisher import Publisher
from tranrepl.settings.publication import Publication


def claim_token(publication: Publication, database: DistributionDatabase, record: PublicationRecord) -> bool:
    """Return whether `tracer_interval` asks for a token now, which the caller has to post."""
    interval = publication.tracer_interval
    return interval is not None and database.tracer_tokens.take_turn(record, timedelta(seconds=interval))


def post_due_token(publication: Publication, opened: OpenLogReader) -> list[str]:
    """Post a token where `tracer_interval` asks for one. Return why it could not be posted, in words: the log is read
    all the same."""
    return post_token(opened.publisher) if claim_token(publication, opened.database, opened.record) else []


def post_token(publisher: Publisher) -> list[str]:
    """Post a token. Return why it could not be posted, in words."""
    try:
        publisher.post_token(TracerToken.new(publisher.name))
    except ConfigurationError as error:
        return [f"no tracer token was posted, as tracer_interval asks: {error.message}; {error.report.remedy}"]
    return []


def stored_tokens(read: LogRead, clock: ClockDifference) -> list[StoredToken]:
    """Return the tokens as they are registered. `clock`: how far the Publisher's is ahead of the distribution
    database's."""
    return [
        StoredToken(
            bytes.fromhex(it.xact_seqno), it.command_id, it.token, moment_of(it.commit_time), clock.microseconds
        )
        for it in read.tokens
    ]
