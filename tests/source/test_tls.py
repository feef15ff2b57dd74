"""Trusted and untrusted certificates, and environment variables for them."""

import datetime as dt
import gc
import ipaddress
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from catalogue.errors import QueryError, SourceUnavailable, Unreachable, WithoutTls
from catalogue.settings import Settings
from catalogue.source.http import HttpSource, Timeouts
from catalogue.source.open import open_source
from catalogue.source.retry import PoliteSource
from tests.support.amounts import in_part, in_soak
from tests.support.clocks import FakeClock
from tests.support.faults import FaultServer
from tests.support.sources import DATA, FILES, SUFFIX, use_s3

_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True)
class Identity:
    certificate: Path
    key: Path


def identity(folder: Path, name: str, host: str = "127.0.0.1", *, days: int = 30) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        alternative = x509.DNSName(host)
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=60))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    made = Identity(folder / f"{name}.pem", folder / f"{name}.key")
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made


def context_of(shown: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    return context


def serving(shown: Identity) -> FaultServer:
    return FaultServer({"x": DATA}, tls=context_of(shown))


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield
    gc.collect(1)  # new objects: unclosed sources warn now, and warnings are errors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def good(folder: Path) -> Identity:
    return identity(folder, "good")


@pytest.fixture
def server(good: Identity) -> Iterator[FaultServer]:
    with serving(good) as server:
        yield server


def opened(url: str) -> PoliteSource:
    return open_source(url, Settings(contact="me@example.org"), clock=FakeClock())


@in_part(3)
@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_honours_certificate_variables(
    server: FaultServer, good: Identity, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(good.certificate))
    with closing(opened(server.url)) as source:
        assert source.get("x", SUFFIX).body == DATA[-5000:]
        assert source.get("x", SUFFIX).body == DATA[-5000:]
    assert server.requests == 2


@in_soak
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the file names of such folders")
@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"])
def test_honours_certificate_folders(
    server: FaultServer, good: Identity, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["openssl", "x509", "-noout", "-subject_hash", "-in", str(good.certificate)]
    name = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    shutil.copy(good.certificate, tmp_path / f"{name}.0")
    monkeypatch.setenv(variable, str(tmp_path))
    with closing(opened(server.url)) as source:
        assert source.get("x", SUFFIX).body == DATA[-5000:]


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "SSLKEYLOGFILE"])
def test_names_the_variable_of_a_file_that_cannot_be_used(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "/no/such/file")
    with pytest.raises(QueryError, match=f"^{variable} .*/no/such/file.*No such file"):
        opened("https://data.example/")


def refused(url: str, reason: str, *, source_url: str = "") -> None:
    """A rejected certificate is not requested again."""
    with closing(opened(source_url or url)) as source:
        with pytest.raises(SourceUnavailable, match=f"{url} has an untrusted certificate.*{reason}") as raised:
            source.get("x", SUFFIX)
        assert raised.value.exit_status == 75
        clock = source.limiter.clock
        assert isinstance(clock, FakeClock)
        assert clock.waits == []


@pytest.mark.parametrize(
    ("made", "reason", "variable"),
    [
        ({}, "self.signed", "SSL_CERT_FILE"),
        ({"host": "data.commoncrawl.org"}, "IP address mismatch", "SSL_CERT_FILE"),
        ({"days": -1}, "expired", "CURL_CA_BUNDLE"),
    ],
    ids=["unknown", "other host", "expired"],
)
def test_rejects_untrusted_certificates(
    folder: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, Any], reason: str, variable: str
) -> None:
    wrong = identity(folder, "wrong", **made)
    if made:
        monkeypatch.setenv(variable, str(wrong.certificate))
    with serving(wrong) as server:
        refused(server.url, f"{reason}.*set {variable}")
        assert server.requests == 0


def test_s3_rejects_untrusted_certificates(good: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(good) as server:
        use_s3(monkeypatch, server.url)
        refused(server.url, "self.signed.*set AWS_CA_BUNDLE", source_url="s3://bucket/")
    gc.collect(1)


def test_server_without_tls_is_unreachable() -> None:
    with FaultServer(FILES) as server:
        url = server.url.replace("http:", "https:")
        short = Timeouts(connect=0.3)  # client and server wait for each other
        with (
            closing(HttpSource(url, user_agent="test", connections=1, timeouts=short)) as source,
            pytest.raises(Unreachable, match=f"{url}x: no usable response"),
        ):
            source.get("x", SUFFIX)
        assert server.requests == 0


def test_plain_answers_to_tls_are_named_after_a_few_attempts() -> None:
    attempts = 3

    def serve() -> None:
        for _ in range(attempts):
            connected, _ = listening.accept()
            with connected:
                connected.recv(1 << 16)
                connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/"
        with (
            closing(opened(url)) as source,
            pytest.raises(WithoutTls, match=f"{url} is answered without TLS; does its address start with http://"),
        ):
            source.get("x", SUFFIX)
        assert source.requests == attempts
        thread.join()


@in_part(3)
@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
@pytest.mark.parametrize("content", [None, b"", b"no certificates"])
def test_rejects_unreadable_certificate_files(
    tmp_path: Path, variable: str, content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "bundle").write_bytes(content)
    monkeypatch.setenv(variable, str(tmp_path / "bundle"))
    threads = threading.active_count()
    with pytest.raises(QueryError, match=f"{variable} is set to .*bundle, which contains no readable certificates"):
        opened("https://127.0.0.1:1/")
    assert threading.active_count() <= threads


@contextmanager
def tunnel(shown: Identity | None) -> Iterator[tuple[int, list[str]]]:
    """Run a proxy for one tunnel, which clients reach by TLS if it has an identity; yield its port and requests."""
    heads: list[str] = []

    def serve() -> None:
        client, _ = listening.accept()
        with context_of(shown).wrap_socket(client, server_side=True) if shown else client as connected:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += connected.recv(4096)
            heads.append(head.decode())
            host, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection((host, int(port))) as target:
                connected.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pour, args=(target, connected))
                back.start()
                _pour(connected, target)
                back.join()

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], heads
        thread.join()


def _pour(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxy_password_is_not_sent_through_the_tunnel(
    server: FaultServer, good: Identity, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(good.certificate))
    with tunnel(good if scheme == "https" else None) as (port, heads):
        monkeypatch.setenv("https_proxy", f"{scheme}://me:canary@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "other.example")
        with closing(opened(server.url)) as source:
            assert source.get("x", SUFFIX).body == DATA[-5000:]
            assert "canary" not in f"{source!r} {source.inner!r}"
        (head,) = heads
    assert head.startswith(f"CONNECT {server.url[8:-1]} HTTP/1.")
    assert "Proxy-Authorization: Basic bWU6Y2FuYXJ5" in head
    (seen,) = server.log
    assert "proxy-authorization" not in seen.headers
    assert "me@example.org" in seen.headers["user-agent"]
