"""The provider of OpenID Connect: its configuration and keys, the address to sign in at, and the claims of a person.

Laws
- A person's claims are believed only from a token that the provider signed with an asymmetric key, for this client, for this
  sign-in (nonce) and not expired (OpenID Connect Core 3.1.3.7), and from the userinfo of the same subject.
- A code is exchanged with the verifier of the browser that began (PKCE, RFC 7636), and with no other redirect address.

Knows neither users nor sessions.

Keeps law: no-link-by-an-unverified-address (docs/laws.md).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jwt

from appliance.accounts.oidc.http import Unavailable, ask
from mailcore.config.oidc import Oidc, is_safe_url

__all__ = ["Claims", "Provider", "Unavailable", "Untrusted"]

KEPT_S = 300.0  # configuration and keys
KEYS_AGAIN_S = 10.0  # keys are read again for an unknown one, but not more often
LEEWAY_S = 60  # between our clock and the provider's
SECRET_BYTES_MAX = 4_096
# Asymmetric ones only: with HS256, a public key could be taken for a secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_WELL_KNOWN = "/.well-known/openid-configuration"
_FROM_USERINFO = ("preferred_username", "name")


class Untrusted(Exception):
    """Says what is wrong with a token."""


@dataclass(frozen=True)
class Claims:
    """A person, as the provider describes him."""

    subject: str
    address: str  # mail address; "" unless the provider says that it is verified
    has_unverified_address: bool
    username: str
    name: str
    groups: frozenset[str]
    amr: frozenset[str]


class Provider:
    """One provider. Keeps its configuration and keys for some minutes; safe in several threads."""

    def __init__(self, settings: Oidc) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._configuration: dict[str, Any] = {}
        self._read_at = float("-inf")
        self._keys: list[jwt.PyJWK] = []
        self._keys_at = float("-inf")

    def address_to_sign_in(self, redirect_uri: str, *, state: str, nonce: str, verifier: str) -> str:
        """Returns the provider's address that the browser is sent to. Raises Unavailable."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code", "client_id": self._settings.client_id, "redirect_uri": redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *self._settings.scopes))), "state": state, "nonce": nonce,
            "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        place = self._endpoint("authorization_endpoint")
        return f"{place}{'&' if '?' in place else '?'}{urlencode(asked)}"

    def claims(self, code: str, redirect_uri: str, *, nonce: str, verifier: str) -> Claims:
        """Exchanges a code for the person's claims. Raises Unavailable, Untrusted."""
        answer = self._exchange(code, redirect_uri, verifier)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise Untrusted("the provider sent no ID token")
        claims = self.checked(token, nonce)
        wanted = ("email", self._settings.groups_claim) if self._settings.maps_groups else ("email",)
        if any(name not in claims for name in wanted):
            claims = self._with_userinfo(claims, answer.get("access_token"))
        return self._described(claims)

    def checked(self, token: str, nonce: str) -> dict[str, Any]:
        """Returns the claims of an ID token, or raises Untrusted. Raises Unavailable if the keys cannot be read."""
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise Untrusted(f"its algorithm is {str(header.get('alg'))[:20]!r}")
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key(header),
                algorithms=[str(header["alg"])],
                audience=self._settings.client_id,
                issuer=self._settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "aud", "iss", "sub"]},
            )
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            raise Untrusted(f"{type(error).__name__}: {error}") from error
        audience = claims["aud"]
        if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != self._settings.client_id:
            raise Untrusted("it is for several clients, and was not given to this one (azp)")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise Untrusted("its nonce is not that of this sign-in")
        if not isinstance(claims["sub"], str) or not 1 <= len(claims["sub"]) <= 255:  # OpenID Connect Core 2
            raise Untrusted("it has no usable subject")
        return claims

    # Questions to the provider

    def _configured(self) -> Mapping[str, Any]:
        with self._lock:
            if time.monotonic() - self._read_at > KEPT_S:
                issuer = self._settings.issuer
                found = ask(f"{issuer.rstrip('/')}{_WELL_KNOWN}", self._settings.timeout_s)
                if found.get("issuer") != issuer:
                    raise Unavailable(
                        f"it calls itself {str(found.get('issuer'))[:200]!r}; set [oidc] issuer to this text"
                    )
                self._configuration, self._read_at = found, time.monotonic()
            return self._configuration

    def _endpoint(self, name: str) -> str:
        place = self._configured().get(name)
        if not isinstance(place, str) or not is_safe_url(place):
            raise Unavailable(f"its configuration has no usable {name}")
        return place

    def _key(self, header: Mapping[str, Any]) -> Any:
        """Returns the key that a token names. Raises Untrusted."""
        algorithm = str(header["alg"])
        for is_last in (False, True):
            found = [each for each in self._known_keys(again=is_last) if _fits(each, header.get("kid"), algorithm)]
            if len(found) == 1 or (found and header.get("kid")):
                return found[0].key
            if found:
                raise Untrusted("it names no key, and the provider has several")
        raise Untrusted("it is signed with a key that the provider does not have")

    def _known_keys(self, *, again: bool) -> list[jwt.PyJWK]:
        place = self._endpoint("jwks_uri")
        with self._lock:
            age = time.monotonic() - self._keys_at
            if age > KEPT_S or (again and age > KEYS_AGAIN_S):
                given = ask(place, self._settings.timeout_s).get("keys")
                self._keys, self._keys_at = list(_readable(given)), time.monotonic()
            return self._keys

    def _exchange(self, code: str, redirect_uri: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._settings.client_id,
            "code_verifier": verifier,
        }
        headers = {}
        if secret := self._secret():
            methods = self._configured().get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
            if "client_secret_basic" in methods:  # RFC 6749 2.3.1: both encoded as in a form
                pair = f"{quote(self._settings.client_id, safe='')}:{quote(secret, safe='')}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            else:
                form["client_secret"] = secret
        return ask(self._endpoint("token_endpoint"), self._settings.timeout_s, form=form, headers=headers)

    def _secret(self) -> str:
        if not self._settings.client_secret_file:
            return ""
        try:
            with Path(self._settings.client_secret_file).open("rb") as file:
                return file.read(SECRET_BYTES_MAX).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(f"[oidc] client_secret_file cannot be read: {error}") from error

    def _with_userinfo(self, claims: dict[str, Any], access_token: object) -> dict[str, Any]:
        """Returns the claims, with those that only the userinfo has. Raises Untrusted if it is another person's."""
        if not isinstance(access_token, str) or not isinstance(self._configured().get("userinfo_endpoint"), str):
            return claims
        place = self._endpoint("userinfo_endpoint")
        found = ask(place, self._settings.timeout_s, headers={"Authorization": f"Bearer {access_token}"})
        if found.get("sub") != claims["sub"]:  # OpenID Connect Core 5.3.2
            raise Untrusted("the userinfo is of another person")
        # Address and mark are of one source: one that is verified must not lend its mark to another.
        address = {name: (claims if "email" in claims else found).get(name) for name in ("email", "email_verified")}
        more = (*_FROM_USERINFO, self._settings.groups_claim)
        return {**{name: found[name] for name in more if name in found}, **claims, **address}

    def _described(self, claims: Mapping[str, Any]) -> Claims:
        address = claims.get("email")
        address = address if isinstance(address, str) and address.isprintable() and len(address) <= 254 else ""
        mark = claims.get("email_verified")
        is_verified = mark is True or mark == "true"  # some providers write it as text
        return Claims(
            subject=str(claims["sub"]),
            address=address if is_verified else "",
            has_unverified_address=bool(address) and not is_verified,
            username=_text(claims.get("preferred_username"))[:150],
            name=_text(claims.get("name"))[:150],
            groups=frozenset(_words(claims.get(self._settings.groups_claim))),
            amr=frozenset(_words(claims.get("amr"))),
        )


def _fits(key: jwt.PyJWK, wanted: object, algorithm: str) -> bool:
    if key.public_key_use not in (None, "sig") or (wanted is not None and key.key_id != wanted):
        return False
    kinds = {"R": "RSA", "P": "RSA", "ES": "EC", "Ed": "OKP"}
    return key.key_type == (kinds.get(algorithm[:1]) or kinds.get(algorithm[:2]))


def _readable(given: object) -> Any:
    for each in given if isinstance(given, list) else ():
        try:
            yield jwt.PyJWK.from_dict(each)
        except (jwt.PyJWTError, TypeError, ValueError, AttributeError, KeyError):
            continue  # of a kind that we do not know; others may follow


def _text(given: object) -> str:
    return given if isinstance(given, str) and given.isprintable() else ""


def _words(given: object) -> list[str]:
    """Returns a list of texts; some providers write one text instead of a list of one."""
    words = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return [each for each in words if isinstance(each, str)]
