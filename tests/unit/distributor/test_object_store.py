"""What object storage's answers are to a job: a mistake in the settings, or a reason to run again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tranrepl.connections import Connection
from tranrepl.distributor.command_file import write_few_commands
from tranrepl.distributor.command_store import CommandStore, new_folder
from tranrepl.distributor.object_store import KINDS, ObjectStore
from tranrepl.distributor.store import store_at
from tranrepl.errors import ConfigurationError, ReplicationError, TransientError

_ASKED = "Error performing PUT http://127.0.0.1:403/bucket/400/expired/x?sig=hidden in 3ms"
_STATUS = f"Generic S3 error: {_ASKED} - Server returned non-2xx status code:"
_BODY = "<?xml version='1.0'?><Error><Code>{}</Code><Message>In its words.\nRequestId:1</Message></Error>"


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
    assert "RequestId" not in str(error)
    assert "hidden" not in str(error)


def test_an_object_that_is_missing_is_no_mistake_in_the_settings() -> None:
    text = f"{_STATUS} 404 Not Found: {_BODY.format('NoSuchKey')}"
    assert isinstance(ObjectStore("s3://bucket/store", None)._error("read", text, is_missing=True), FileNotFoundError)


class _Answer(BaseHTTPRequestHandler):
    status, code = 500, ""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        body = f"<?xml?><Error><Code>{self.code}</Code><Message>Said.</Message><Resource>/b-403/</Resource></Error>"
        self.send_response(self.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_PUT = do_GET  # noqa: N815 — the library's name

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _store(endpoint: str, monkeypatch: pytest.MonkeyPatch, status: int, code: str) -> CommandStore:
    """Return a store that answers like that."""
    monkeypatch.setattr(_Answer, "status", status)
    monkeypatch.setattr(_Answer, "code", code)
    options = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    return store_at("s3://b-403/expired", Connection("store", "aws", login="key", password="secret", options=options))  # noqa: S106


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        # The bucket's rule, or another one, has aborted the upload.
        (404, "NoSuchUpload", TransientError),
        (400, "RequestTimeout", TransientError),
        (409, "OperationAborted", TransientError),
        (400, "AuthorizationHeaderMalformed", ConfigurationError),
        (403, "AccessDenied", ConfigurationError),
        (404, "NoSuchBucket", ConfigurationError),
    ],
)
def test_what_a_write_is_answered_decides_whether_it_is_tried_again(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, status: int, code: str, expected: type[ReplicationError]
) -> None:
    with pytest.raises(expected):
        write_few_commands(_store(endpoint, monkeypatch, status, code), [])


@pytest.mark.parametrize(("code", "expected"), [("NoSuchKey", FileNotFoundError), ("", TransientError)])
def test_a_file_is_gone_where_the_store_says_so_and_not_a_proxy(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, code: str, expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        _store(endpoint, monkeypatch, 404, code).read(new_folder())


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket/path", {"endpoint_url": "127.0.0.1:1"}),
        ("s3://bucket/path", {"endpoint_url": "http://a host"}),
        ("s3://bucket/a//path", {"endpoint_url": "http://127.0.0.1:1"}),
        ("gs://bucket/path", {"endpoint_url": "127.0.0.1:1"}),
        ("gs://bucket/path", {"keyfile_dict": "hidden"}),
        ("gs://bucket/path", {"key_path": "/hidden/file"}),
        ("az://container/path", {"account_key": "hidden!"}),
        ("az://container/path", {"sas_token": "hidden"}),
    ],
)
def test_what_no_client_can_be_made_of_is_to_be_corrected(url: str, options: dict[str, str]) -> None:
    connection = Connection("store", KINDS[url[:2]], options=options)
    if url.startswith("s3:"):
        connection = replace(connection, login="key", password="hidden!")  # noqa: S106
    with pytest.raises(ConfigurationError) as raised:
        store_at(url, connection).read_text("name")
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1:1", "http://a host"])
def test_a_host_that_is_no_address_is_to_be_corrected(host: str) -> None:
    with pytest.raises(ConfigurationError, match="its host is no address"):
        store_at("az://container/path", Connection("store", "wasb", host=host, login="shop")).read_text("name")


def test_half_a_pair_of_keys_is_not_taken_for_none() -> None:
    store = store_at("s3://bucket/store", Connection("store", "aws", login="key", options={"region_name": "us-east-1"}))
    with pytest.raises(ConfigurationError, match="half of a pair"):
        store.read("0" * 32)
