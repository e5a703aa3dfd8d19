"""Passwords as PostgreSQL keeps them."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode
from hashlib import pbkdf2_hmac, sha256


def scram_verifier(password: str, iterations: int) -> str:
    """Return what `ALTER ROLE … PASSWORD` keeps of an ASCII password (RFC 5803), hashed that many times."""
    salt = secrets.token_bytes(16)
    salted = pbkdf2_hmac("sha256", password.encode("ascii"), salt, iterations)
    stored_key = sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [b64encode(it).decode() for it in (salt, stored_key, server_key)]
    return "SCRAM-SHA-256${}:{}${}:{}".format(iterations, *encoded)
