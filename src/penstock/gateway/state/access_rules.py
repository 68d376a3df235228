"""Reads which clients have access: API keys or signed tokens that Envoy checks. Each names a tenant for the pickers."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from penstock.errors import UnreadableFile, UsageError
from penstock.reading.text import read_text
from penstock.reading.yaml import Table, Value, read_table

VERSION: Final = 1
_WRITTEN_BY: Final = "an editor; docs/gateway.md, Access control"
_SHORTEST_KEY: Final = 16
_MAX_NAME: Final = 128
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantKey:
    """An API key that a client sends as `Authorization: Bearer`, and its tenant."""

    tenant: str
    key: str

    def __post_init__(self) -> None:
        if not 0 < len(self.tenant) <= _MAX_NAME or not self.tenant.isascii() or not self.tenant.isprintable():
            raise UsageError(f"a tenant's name is 1 to {_MAX_NAME} printable ASCII characters")
        if len(self.key) < _SHORTEST_KEY or not self.key.isascii() or any(c.isspace() for c in self.key):
            raise UsageError(
                f"the key of '{self.tenant}' is too weak; write {_SHORTEST_KEY} characters or more, no blanks"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTokens:
    """JWTs of an external issuer, and the claim that names the tenant."""

    issuer: str
    audiences: tuple[str, ...]
    jwks: str
    """JWKS with the public keys: its text, or the URL to fetch it from."""
    tenant_claim: str = "sub"
    file: Path | None = None
    """File of the JWKS text; re-read when it changes."""

    @property
    def fetched(self) -> bool:
        """True if the public keys are fetched from a URL."""
        return urlsplit(self.jwks).scheme in _PORTS

    def server(self) -> tuple[str, int, bool]:
        """Return the JWKS server: host, port, and whether it uses TLS."""
        parts = urlsplit(self.jwks)
        return parts.hostname or "", parts.port or _PORTS[parts.scheme], parts.scheme == "https"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Clients that have access, and the API key of the engines themselves if they need one."""

    keys: tuple[TenantKey, ...] = ()
    tokens: SignedTokens | None = None
    engine_key: str | None = None

    def __post_init__(self) -> None:
        if bool(self.keys) == (self.tokens is not None):
            raise UsageError("write `keys` or `tokens`, and not both: a request has one `Authorization`")
        said = [entry.key for entry in self.keys]
        if len(set(said)) < len(said):
            raise UsageError("two tenants have the same key; give each its own")

    @property
    def files(self) -> tuple[Path, ...]:
        """Files with keys; a change reloads them like the access file itself."""
        return (self.tokens.file,) if self.tokens is not None and self.tokens.file is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """TLS certificate that the gateway presents to clients; re-read when the files are replaced."""

    chain: Path
    key: Path

    def __post_init__(self) -> None:
        for path in (self.chain, self.key):
            if not path.is_file():
                raise UsageError(f"no such file: {path}; --tls-cert and --tls-key name PEM files")


def read_access(path: Path) -> Access:
    """Read an access file. Paths in it are relative to its folder."""
    table = read_table(read_text(path, "write one (docs/gateway.md)"), path.name, kind="access", written_by=_WRITTEN_BY)
    table.version(VERSION, written_by=_WRITTEN_BY)
    table.only("version", "keys", "tokens", "engine_key")
    listed = table.get("keys")
    keys = tuple(value.made(_key) for value in listed.items()) if listed is not None else ()
    written = table.get("tokens")
    tokens = written.made(partial(_tokens, beside=path.parent)) if written is not None else None
    engine_key = table.optional("engine_key", Value.text, None)
    try:
        return Access(keys=keys, tokens=tokens, engine_key=engine_key)
    except UsageError as error:
        raise UsageError(f"{path.name}: {error}") from None


def _key(table: Table) -> Callable[[], TenantKey]:
    table.only("tenant", "key")
    return partial(TenantKey, tenant=table.required("tenant").text(), key=table.required("key").text())


def access_of(path: Path | None) -> Access | None:
    """Read an access file. None means that there is none and every client has access."""
    return None if path is None else read_access(path)


def _tokens(table: Table, *, beside: Path) -> Callable[[], SignedTokens]:
    table.only("issuer", "audiences", "jwks", "tenant_claim")
    jwks, file = table.required("jwks").parsed(partial(_public_keys, beside=beside))
    return partial(
        SignedTokens,
        issuer=table.required("issuer").text(),
        audiences=tuple(value.text() for value in table.required("audiences").items()),
        jwks=jwks,
        tenant_claim=table.optional("tenant_claim", Value.text, "sub"),
        file=file,
    )


def _public_keys(written: str, beside: Path) -> tuple[str, Path | None]:
    """Return a URL unchanged, or the text and path of a JWKS file, which is re-read when it changes."""
    if urlsplit(written).scheme in _PORTS:
        return written, None
    path = beside / written
    try:
        text = read_text(path, "name a JWKS file beside this one, or its https address")
    except UnreadableFile as error:
        raise UsageError(str(error)) from None
    if not _has_keys(text):
        raise UsageError(f'{path.name} has no public keys; write a JWKS, such as {{"keys": [{{"kty": "RSA", ...}}]}}')
    return text, path


def _has_keys(text: str) -> bool:
    """Return whether a text is a JWKS. Envoy would silently keep the last readable one."""
    try:
        keys = json.loads(text)["keys"]
        return bool(keys) and all(isinstance(key["kty"], str) for key in keys)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
