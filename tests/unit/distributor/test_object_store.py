"""What object storage's answers are to a job: a mistake in the settings, or a reason to run again."""

from __future__ import annotations

import pytest

from tranrepl.distributor.object_store import ObjectStore
from tranrepl.errors import ConfigurationError, ReplicationError, TransientError

_ASKED = "Error performing PUT http://127.0.0.1:403/bucket/400/expired/x?sig=hidden in 3ms"
_STATUS = f"Generic S3 error: {_ASKED} - Server returned non-2xx status code:"
_BODY = "<?xml version='1.0'?><Error><Code>{}</Code><Message>In its words.</Message></Error>"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (f"{_ASKED}, after 2 retries - HTTP error: error sending request", TransientError, "error sending request"),
        (f"{_STATUS} 503 Service Unavailable: {_BODY.format('SlowDown')}", TransientError, "SlowDown: In its words"),
        (f"{_STATUS} 403 Forbidden: {_BODY.format('AccessDenied')}", ConfigurationError, "AccessDenied"),
        (f"{_STATUS} 403 Forbidden: ", ConfigurationError, "403 Forbidden"),
        (f"{_STATUS} 400 Bad Request: {_BODY.format('ExpiredToken')}", ConfigurationError, "ExpiredToken"),
        (f"{_STATUS} 404 Not Found: {_BODY.format('NoSuchBucket')}", ConfigurationError, "there is no bucket bucket"),
        ("Generic S3 error: DeleteObjects request failed. (code: AccessDenied)", ConfigurationError, "AccessDenied"),
        ("Error performing PUT http://169.254.169.254/latest/api/token", ConfigurationError, "no identity of its own"),
        (f"{_ASKED} - Received redirect without LOCATION", ConfigurationError, "Received redirect"),
    ],
)
def test_answers_are_told_apart(text: str, kind: type[ReplicationError], message: str) -> None:
    error = ObjectStore("s3://bucket/400/expired", None)._error("write", text, is_missing=False)
    assert type(error) is kind
    assert message in str(error)
    assert "hidden" not in str(error)


def test_an_object_that_is_missing_is_no_mistake_in_the_settings() -> None:
    text = f"{_STATUS} 404 Not Found: {_BODY.format('NoSuchKey')}"
    assert isinstance(ObjectStore("s3://bucket/store", None)._error("read", text, is_missing=True), FileNotFoundError)
