"""Configures authentication by API key or JWT. Envoy writes the tenant into a header that clients cannot set."""

import os
from pathlib import Path
from typing import Final

from penstock.gateway.envoy.clusters import Value, named_cluster
from penstock.gateway.state.access_rules import Access, Certificate, SignedTokens
from penstock.gateway.state.addresses import is_address
from penstock.gateway.state.headers import TENANT

ACCESS_FILTER: Final = "penstock.access"
CERTIFICATE: Final = "clients"
_JWKS: Final = "penstock_jwks"
_KEY_AUTH: Final = "type.googleapis.com/envoy.extensions.filters.http.api_key_auth.v3"
_JWT: Final = "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"
_TLS: Final = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3"
_ROOTS: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Paths of the CA bundle on Debian, Fedora and Alpine. The variable `SSL_CERT_FILE` names another one."""
_FETCHED_EVERY_S: Final = 60
"""Seconds between two fetches of the JWKS. For this many seconds, Envoy may still accept a revoked key."""
_SCHEMES: Final = ("Bearer", "bearer", "BEARER")
"""Accepted schemes of the Authorization header.

JWTs are read from this header only. By default, Envoy would also read a JWT from the query, which reaches the engines.
"""
_FROM_AND_TO: Final[Value] = {
    "key_sources": [{"header": "Authorization"}, {"header": "x-api-key"}],
    "forwarding": {"header": TENANT[0], "hide_credentials": True},
}
"""Settings of the authentication filter.

Every route repeats these settings, because key settings of a route replace those of the filter.
"""


def access_filter(access: Access) -> Value:
    """Return a filter that replies 401 to a request without a valid credential.

    If the credential is valid, the filter replaces it by the tenant header.
    """
    config = _key_settings() if access.tokens is None else _token_settings(access.tokens)
    return {"name": ACCESS_FILTER, "typed_config": config}


def key_credentials(access: Access) -> Value:
    """Return the API keys as route settings, because Envoy changes routes without closing connections."""
    if not access.keys:
        return {}
    credentials = [{"key": key, "client": entry.tenant} for entry in access.keys for key in _spellings(entry.key)]
    return {ACCESS_FILTER: {"@type": f"{_KEY_AUTH}.ApiKeyAuthPerRoute", "credentials": credentials, **_FROM_AND_TO}}


def _spellings(key: str) -> tuple[str, ...]:
    """Return an API key in each form in which it may reach Envoy's comparison.

    Envoy removes the scheme only if it is written `Bearer`, but clients may write the scheme in upper or lower case
    (RFC 9110, 11.1).
    """
    return key, f"bearer {key}", f"BEARER {key}"


def _key_settings() -> Value:
    return {"@type": f"{_KEY_AUTH}.ApiKeyAuth", **_FROM_AND_TO}


def _token_settings(tokens: SignedTokens) -> Value:
    source: Value = {"local_jwks": {"inline_string": tokens.jwks}}
    if tokens.fetched:
        fetched = {"uri": tokens.jwks, "cluster": _JWKS, "timeout": "5s"}
        source = {"remote_jwks": {"http_uri": fetched, "cache_duration": f"{_FETCHED_EVERY_S}s", "async_fetch": {}}}
    provider = {
        "issuer": tokens.issuer,
        "audiences": list(tokens.audiences),
        "require_expiration": True,
        "from_headers": [{"name": "Authorization", "value_prefix": f"{scheme} "} for scheme in _SCHEMES],
        "forward": False,
        "claim_to_headers": [{"header_name": TENANT[0], "claim_name": tokens.tenant_claim}],
        **source,
    }
    rule = {"match": {"prefix": "/"}, "requires": {"provider_name": "tokens"}}
    return {"@type": _JWT, "providers": {"tokens": provider}, "rules": [rule]}


def jwks_cluster(tokens: SignedTokens) -> Value:
    """Return the cluster of the server from which Envoy fetches the JWKS."""
    host, port, secure = tokens.server()
    cluster = named_cluster(_JWKS, host, port)
    if secure:
        roots = os.environ.get("SSL_CERT_FILE") or next((path for path in _ROOTS if Path(path).exists()), _ROOTS[0])
        kind = "IP_ADDRESS" if is_address(host) else "DNS"
        trusted: Value = {
            "trusted_ca": {"filename": roots},
            # Without this, Envoy accepts a trusted certificate of any other name.
            "match_typed_subject_alt_names": [{"san_type": kind, "matcher": {"exact": host}}],
        }
        context = {
            "@type": f"{_TLS}.UpstreamTlsContext",
            "sni": host,
            "common_tls_context": {"validation_context": trusted},
        }
        cluster["transport_socket"] = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    return cluster


def tls_socket(secrets: Value) -> Value:
    """Return the TLS socket settings for client connections. `secrets` is the source of the certificate."""
    context = {
        "tls_certificate_sds_secret_configs": [{"name": CERTIFICATE, "sds_config": secrets}],
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
    }
    config = {"@type": f"{_TLS}.DownstreamTlsContext", "common_tls_context": context}
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}


def certificates(certificate: Certificate, generation: int = 0) -> Value:
    """Return the TLS certificate as an Envoy secret. Envoy reads the certificate again when its files are replaced.

    Envoy notices renames in the watched folder, which cert-manager and Kubernetes use, but not files that are rewritten
    in place. Envoy also reads certificate files again when their configured path changes. Every second generation
    writes the same path with an extra `/./`, so that the configured path changes.
    """
    chain, key = certificate.chain.absolute(), certificate.key.absolute()
    way = "/./" if generation % 2 else "/"
    files = {
        "certificate_chain": {"filename": f"{chain.parent}{way}{chain.name}"},
        "private_key": {"filename": f"{key.parent}{way}{key.name}"},
        "watched_directory": {"path": str(chain.parent)},
    }
    secret = {"@type": f"{_TLS}.Secret", "name": CERTIFICATE, "tls_certificate": files}
    return {"version_info": "1", "resources": [secret]}
