"""Reads the access rules: API keys or signed tokens that Envoy checks, and the tenant of each key or token."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

from penstock.errors import UnreadableFile, UsageError
from penstock.gateway.state.addresses import is_loopback
from penstock.reading.file_shape import FieldError, FileShape, file_config
from penstock.reading.scalars import Whole
from penstock.reading.text import read_text

VERSION: Final = 1
_WRITTEN_BY: Final = "an editor; docs/gateway/run.md, Access control"
_SHORTEST_KEY: Final = 16
_MAX_NAME: Final = 128
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantKey:
    """An API key that a client sends as `Authorization: Bearer`, and its tenant."""

    tenant: str
    key: str
    critical: bool = False
    """Whether its requests may say that a missed SLO of theirs weighs more."""

    def __post_init__(self) -> None:
        if not 0 < len(self.tenant) <= _MAX_NAME or not self.tenant.isascii() or not self.tenant.isprintable():
            raise UsageError(f"a tenant's name must be 1 to {_MAX_NAME} printable ASCII characters")
        if len(self.key) < _SHORTEST_KEY or not self.key.isascii() or any(c.isspace() for c in self.key):
            raise UsageError(
                f"the key of '{self.tenant}' is too weak; use at least {_SHORTEST_KEY} characters, without blanks"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    """An external issuer of JWTs, and the claim that names the tenant."""

    issuer: str
    audiences: tuple[str, ...]
    jwks: str
    """File or URL of the JWKS with the public keys."""
    tenant_claim: str = "sub"
    critical: tuple[str, ...] = ()
    """Tenants whose requests may say that a missed SLO of theirs weighs more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFloor:
    """The least limits that a client may ask for in headers; 0: any."""

    ttft_s: float = 0.0
    tpot_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTokens(TokenIssuer):
    """JWTs of an external issuer. `jwks` is the text of the JWKS, or the URL from which Envoy fetches the JWKS."""

    file: Path | None = None
    """File that holds the JWKS, read again when the file changes. None if the JWKS is fetched from a URL."""

    @property
    def fetched(self) -> bool:
        """True if the public keys are fetched from a URL."""
        return urlsplit(self.jwks).scheme in _PORTS

    def server(self) -> tuple[str, int, bool]:
        """Return the host and port of the JWKS server, and whether it uses TLS."""
        parts = urlsplit(self.jwks)
        return parts.hostname or "", parts.port or _PORTS[parts.scheme], parts.scheme == "https"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access rules: the credentials that clients need, and the API key that the engines need, if any."""

    keys: tuple[TenantKey, ...] = ()
    tokens: SignedTokens | None = None
    engine_key: str | None = None
    slo_floors: Mapping[str, SloFloor] = field(default_factory=dict)
    """Floors by class of requests."""

    def __post_init__(self) -> None:
        if bool(self.keys) == (self.tokens is not None):
            raise UsageError(
                "use `keys` or `tokens`, but not both, because a request has only one `Authorization` header"
            )
        said = [entry.key for entry in self.keys]
        if len(set(said)) < len(said):
            raise UsageError("two tenants have the same key; give each tenant its own key")

    @property
    def critical(self) -> tuple[str, ...]:
        """Tenants whose requests may say that a missed SLO of theirs weighs more."""
        named = self.tokens.critical if self.tokens is not None else ()
        return (*named, *(entry.tenant for entry in self.keys if entry.critical))

    @property
    def files(self) -> tuple[Path, ...]:
        """Key files that the access file names. Like the access file, key files are read again when they change."""
        return (self.tokens.file,) if self.tokens is not None and self.tokens.file is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """TLS certificate that the gateway presents to clients.

    Envoy reads the certificate again when its files are replaced.
    """

    chain: Path
    key: Path

    def __post_init__(self) -> None:
        for path in (self.chain, self.key):
            if not path.is_file():
                raise UsageError(f"{path} does not exist; --tls-cert and --tls-key must name PEM files")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFile:
    """A whole access file."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = file_config()

    version: Whole
    keys: tuple[TenantKey, ...] = ()
    tokens: TokenIssuer | None = None
    engine_key: str | None = None
    """API key that the engines require."""
    slo_floors: Mapping[str, SloFloor] = field(default_factory=dict)
    """The least limits that clients may ask for in headers, by class of requests."""

    def access(self, folder: Path) -> Access:
        """Return the access rules of this file. A relative path of a JWKS file is relative to `folder`."""
        tokens = None
        if self.tokens is not None:
            try:
                jwks, file = _public_keys(self.tokens.jwks, folder)
            except UsageError as error:
                raise FieldError(str(error), "tokens", "jwks") from None
            stated = {entry.name: getattr(self.tokens, entry.name) for entry in fields(TokenIssuer)}
            tokens = SignedTokens(**{**stated, "jwks": jwks}, file=file)
        return Access(keys=self.keys, tokens=tokens, engine_key=self.engine_key, slo_floors=self.slo_floors)


ACCESS_FILE: Final = FileShape(
    of=AccessFile,
    kind="access",
    written_by=_WRITTEN_BY,
    title="Access rules for `penstock route --access`",
    version=VERSION,
)


def read_access(path: Path) -> Access:
    """Read an access file. Relative paths in the file are relative to the file's folder."""
    text = read_text(path, "write one (docs/gateway/run.md)")
    return ACCESS_FILE.convert(ACCESS_FILE.parse(text, path.name), lambda file: file.access(path.parent))


def access_of(path: Path | None) -> Access | None:
    """Read an access file. If `path` is None, return None, which means that every client has access."""
    return None if path is None else read_access(path)


def _public_keys(written: str, folder: Path) -> tuple[str, Path | None]:
    """Return the JWKS for the source that the access file names.

    If the source is a URL, return the URL and None. If the source is a file, return the file's text and its path.
    """
    parts = urlsplit(written)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise UsageError(f"{written} must begin with https, or anybody on the way could send other keys")
    if parts.scheme in _PORTS:
        return written, None
    path = folder / written
    try:
        text = read_text(path, "name a JWKS file in the same folder, or its https address")
    except UnreadableFile as error:
        raise UsageError(str(error)) from None
    if not _has_keys(text):
        raise UsageError(
            f'{path.name} has no public keys; it must be a JWKS, such as {{"keys": [{{"kty": "RSA", ...}}]}}'
        )
    return text, path


def _has_keys(text: str) -> bool:
    """Return whether a text is a JWKS.

    Envoy does not report an invalid JWKS, but silently keeps the last valid JWKS.
    """
    try:
        keys = json.loads(text)["keys"]
        return bool(keys) and all(isinstance(key["kty"], str) for key in keys)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
