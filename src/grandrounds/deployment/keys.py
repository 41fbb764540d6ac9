"""Who is who between hosts: the federation's certificate authority, its server's certificate, each site's key pair.

Private keys never leave the machine that made them. Sites may share a secret that the coordinator must not know: one
of them makes it and seals it to the public key of each.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from grandrounds.errors import ConfigError, GrandRoundsError

HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
CURVE = ec.SECP384R1  # what Flower's nodes authenticate with
PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey


def make_authority(folder: Path, name: str, days: int = 3650) -> None:
    """ca.crt and ca.key: who signs certificates that this federation's sites believe."""
    key = ec.generate_private_key(CURVE())
    subject = _named(f"{name} (Grand Rounds)")
    builder = _certificate(subject, subject, key, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    _write_private(folder / "ca.key", key)
    _write_certificate(folder / "ca.crt", builder.sign(key, hashes.SHA384()))


def issue_certificate(folder: Path, hosts: Sequence[str], days: int = 365) -> datetime:
    """server.crt and server.key for these names and addresses, signed by the folder's authority; till when it holds."""
    authority = _read_certificate(folder / "ca.crt")
    signer = read_private(folder / "ca.key")
    key = ec.generate_private_key(CURVE())
    builder = _certificate(_named(hosts[0]), authority.subject, key, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    made = builder.sign(signer, hashes.SHA384())
    _write_private(folder / "server.key", key)
    _write_certificate(folder / "server.crt", made)
    return made.not_valid_after_utc


def expires(certificate: Path) -> datetime:
    return _read_certificate(certificate).not_valid_after_utc


def make_key(private: Path, public: Path) -> PublicKey:
    """A site's own pair, in OpenSSH's form as Flower wants it."""
    key = ec.generate_private_key(CURVE())
    _write_private(private, key)
    public.write_bytes(_ssh(key.public_key()) + b"\n")
    return key.public_key()


def read_private(path: Path) -> PrivateKey:
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("not an elliptic-curve key")
    except FileNotFoundError as error:
        raise GrandRoundsError(
            f"there is no key '{path}' yet; a site makes its own with: grandrounds site init"
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"'{path}' is not a private key; a site makes a new pair with: grandrounds site init"
        ) from error
    return key


def read_public(path: Path) -> PublicKey:
    try:
        return _public(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"'{path}' is not a site's public key; ask the site for the .pub file that site init made"
        ) from error


def public_bytes(key: PublicKey) -> bytes:
    """As Flower compares them."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def public_text(key: PublicKey) -> str:
    return _ssh(key).decode()


def public_of(text: str) -> PublicKey:
    """Of a message: whoever sent it may have written anything."""
    try:
        return _public(text.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise GrandRoundsError("what came as a site's public key is none") from error


def fingerprint(key: PublicKey) -> str:
    """What two engineers read to each other over the telephone; `ssh-keygen -lf` shows the same."""
    digest = sha256(base64.b64decode(_ssh(key).split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def certificate_fingerprint(path: Path) -> str:
    """As `fingerprint`; `openssl x509 -fingerprint -sha256` shows the same in another form."""
    digest = _read_certificate(path).fingerprint(hashes.SHA256())
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def certificate_key(path: Path) -> PublicKey:
    key = _read_certificate(path).public_key()
    if not isinstance(key, PublicKey):
        raise ConfigError(f"'{path}' is not a certificate of ours; ask the coordinator for it")
    return key


def seal(secret: bytes, to: PublicKey, purpose: str) -> bytes:
    """Only the holder of the private key can open it: ECDH with a passing key, HKDF, AES-GCM."""
    passing = ec.generate_private_key(CURVE())
    head = passing.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
    nonce = os.urandom(12)
    return head + nonce + AESGCM(_shared(passing, to, head, purpose)).encrypt(nonce, secret, head)


def unseal(sealed: bytes, key: PrivateKey, purpose: str) -> bytes:
    size = 1 + CURVE().key_size // 8
    head, nonce, rest = sealed[:size], sealed[size : size + 12], sealed[size + 12 :]
    try:
        passing = ec.EllipticCurvePublicKey.from_encoded_point(CURVE(), head)
        return AESGCM(_shared(key, passing, head, purpose)).decrypt(nonce, rest, head)
    except (ValueError, InvalidTag) as error:
        raise GrandRoundsError("a sealed secret can't be opened: it is for another site, or was altered") from error


def sign(data: bytes, key: PrivateKey) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA384()))


def signed_by(signature: bytes, data: bytes, key: PublicKey) -> bool:
    try:
        key.verify(signature, data, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True


def _shared(ours: PrivateKey, theirs: PublicKey, salt: bytes, purpose: str) -> bytes:
    agreed = ours.exchange(ec.ECDH(), theirs)
    return HKDF(hashes.SHA256(), 32, salt=salt, info=purpose.encode()).derive(agreed)


def _certificate(subject: x509.Name, issuer: x509.Name, key: PrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=max(1, 1 - days)))  # clocks differ; a test may ask for an expired one
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(not signs, False, False, False, False, signs, signs, False, False)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    if not HOST.fullmatch(host):
        raise ConfigError(f"'{host}' is not a host's name or address: letters, digits, '-' and '.', without a port")
    return x509.DNSName(host)


def _ssh(key: PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)


def _public(data: bytes) -> PublicKey:
    try:
        key = serialization.load_ssh_public_key(data)
    except NotImplementedError as error:  # a compressed point
        raise ValueError("not a P-384 key") from error
    if not isinstance(key, PublicKey) or not isinstance(key.curve, CURVE):
        raise ValueError("not a P-384 key")
    return key


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{path}' is not a certificate; found the federation anew, or put it back") from error


def _write_private(path: Path, key: PrivateKey) -> None:
    encoding = serialization.Encoding.PEM
    form = serialization.PrivateFormat.OpenSSH if path.name != "server.key" else serialization.PrivateFormat.PKCS8
    data = key.private_bytes(encoding, form, serialization.NoEncryption())
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
