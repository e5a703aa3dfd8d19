"""Google Cloud Storage as far as obstore asks it: the calls of its XML API for objects, in a process on loopback.

python google_storage.py PORT FOLDER: keeps objects in the folder, where a file says who may do what, with which key.

Source: Google, "XML API", its objects, multipart uploads, and "HTTP status and error codes for XML".
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import jwt

ACCOUNTS = "accounts.json"
_PAGE = 100
_SMALLEST_PART = 5 * 1024 * 1024
_RANGE = re.compile(r"bytes=(?P<first>\d+)-(?P<last>\d*)")
_PART = re.compile(r"<PartNumber>(\d+)</PartNumber><ETag>(.*?)</ETag>")
Parts = dict[int, bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    content: bytes = b""
    headers: Mapping[str, str] | None = None


class RefusedError(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        self.answer = Answer(status, _xml("Error", f"<Code>{code}</Code><Message>{message}</Message>"))


class GoogleStorage(ThreadingHTTPServer):
    """Buckets are folders, objects their files."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self._folder = folder
        self._accounts = json.loads((folder / ACCOUNTS).read_text())
        self._uploads: dict[str, Parts] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()

    def answer(self, method: str, address: str, headers: Mapping[str, str], body: bytes) -> Answer:
        parts = urlsplit(address)
        bucket, _, name = (unquote(it) for it in parts.path.removeprefix("/").partition("/"))
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            self._allow(headers.get("authorization", ""), _right(method, name))
            with self._lock:
                if not name and method == "PUT":
                    (self._folder / bucket).mkdir(exist_ok=True)
                    return Answer()
                if not (self._folder / bucket).is_dir():
                    raise RefusedError(404, "NoSuchBucket", "The specified bucket does not exist.")
                if not name:
                    return self._list(self._folder / bucket, query)
                file = self._folder / bucket / quote(name, safe="")
                if "uploads" in query or "uploadId" in query:
                    return self._upload(file, method, query, body)
                return self._object(file, method, headers, body)
        except RefusedError as error:
            return error.answer

    def _allow(self, authorization: str, right: str) -> None:
        """Raise RefusedError where that is not the token of an account, or the account may not."""
        token = authorization.removeprefix("Bearer ")
        try:
            account = self._accounts[jwt.get_unverified_header(token)["kid"]]
            jwt.decode(token, account["key"], algorithms=["RS256"], options={"require": ["exp", "iss", "iat"]})
        except (jwt.InvalidTokenError, KeyError):
            raise RefusedError(401, "AuthenticationRequired", "Authentication required.") from None
        if right not in account["rights"]:
            raise RefusedError(403, "AccessDenied", "Access denied.")

    def _list(self, folder: Path, query: Mapping[str, str]) -> Answer:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        named = sorted((unquote(it.name), it) for it in folder.iterdir())
        found = [it for it in named if it[0].startswith(prefix) and it[0] > after]
        listed = "".join(_listed(*it) for it in found[:_PAGE])
        more = len(found) > _PAGE
        if more:
            listed += f"<NextContinuationToken>{escape(found[_PAGE - 1][0])}</NextContinuationToken>"
        return Answer(content=_xml("ListBucketResult", f"{listed}<IsTruncated>{str(more).lower()}</IsTruncated>"))

    def _object(self, file: Path, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if method == "PUT":
            if headers.get("x-goog-if-generation-match") == "0" and file.exists():
                raise RefusedError(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")
            file.write_bytes(body)
            return Answer(headers=_described(file))
        if not file.exists():
            raise RefusedError(404, "NoSuchKey", "The specified key does not exist.")
        if method == "DELETE":
            file.unlink()
            return Answer(204)
        content, described = file.read_bytes(), _described(file)
        if (asked := _RANGE.fullmatch(headers.get("range", ""))) is None:
            return Answer(200, content, described)
        part = content[int(asked["first"]) : int(asked["last"] or len(content)) + 1]
        last = int(asked["first"]) + len(part) - 1
        return Answer(206, part, described | {"content-range": f"bytes {asked['first']}-{last}/{len(content)}"})

    def _upload(self, file: Path, method: str, query: Mapping[str, str], body: bytes) -> Answer:
        if "uploads" in query:
            name = f"{file.name}/{next(self._numbers)}"
            self._uploads[name] = {}
            return Answer(content=_xml("InitiateMultipartUploadResult", f"<UploadId>{name}</UploadId>"))
        name = query["uploadId"]
        if name not in self._uploads:
            raise RefusedError(404, "NoSuchUpload", "The requested upload was not found.")
        if method == "PUT":
            self._uploads[name][int(query["partNumber"])] = body
            return Answer(headers={"etag": _etag(body)})
        parts = self._uploads.pop(name)
        if method == "DELETE":
            return Answer(204)
        named = [(int(number), etag) for number, etag in _PART.findall(body.decode())]
        if not named or named != [(number, _etag(parts[number])) for number in sorted(parts)]:
            raise RefusedError(400, "InvalidPart", "One or more of the specified parts could not be found.")
        if min((len(parts[number]) for number, _ in named[:-1]), default=_SMALLEST_PART) < _SMALLEST_PART:
            raise RefusedError(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum object size.")
        file.write_bytes(b"".join(parts[number] for number, _ in named))
        etag = escape(_etag(file.read_bytes()))
        return Answer(content=_xml("CompleteMultipartUploadResult", f"<ETag>{etag}</ETag>"), headers=_described(file))


def _right(method: str, name: str) -> str:
    if method in ("GET", "HEAD"):
        return "read"
    return "write" if name else "administer"


def _described(file: Path) -> dict[str, str]:
    status = file.stat()
    return {
        "etag": _etag(file.read_bytes()),
        "last-modified": formatdate(status.st_mtime, usegmt=True),
        "x-goog-generation": str(status.st_mtime_ns // 1_000),
    }


def _listed(name: str, file: Path) -> str:
    status = file.stat()
    changed = f"{datetime.fromtimestamp(status.st_mtime, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3]
    return (
        f"<Contents><Key>{escape(name)}</Key><Generation>{status.st_mtime_ns // 1_000}</Generation>"
        f"<LastModified>{changed}Z</LastModified><ETag>&quot;&quot;</ETag><Size>{status.st_size}</Size></Contents>"
    )


def _etag(content: bytes) -> str:
    return f'"{md5(content, usedforsecurity=False).hexdigest()}"'


def _xml(kind: str, inner: str) -> bytes:
    return f"<?xml version='1.0' encoding='UTF-8'?><{kind}>{inner}</{kind}>".encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: GoogleStorage

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.answer(self.command, self.path, headers, body)
        self.send_response(answer.status)
        for name, value in ({"content-length": str(len(answer.content))} | dict(answer.headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT  # noqa: N815 — the library's names

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    GoogleStorage(int(sys.argv[1]), Path(sys.argv[2])).serve_forever()
