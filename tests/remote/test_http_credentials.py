"""Who is told a password, and that nobody is shown one: addresses, netrc, headers, redirects, TLS, proxies."""

from __future__ import annotations

import base64
import os
import select
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.http import connect
from mlcbuild.cache.remote.settings import Deadlines, ServerSettings
from mlcbuild.cache.remote.transport import ErrorKind, Transport, TransportError
from tests.remote import http_server
from tests.remote.http_server import Cache

SHA256 = DigestFunction.SHA256
CONTENT = b"hello\n"
BLOB = SHA256.of_bytes(CONTENT)
SECRET = "pass:wörd"
BASIC = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
SHOWN_SECRETS = (SECRET, "pass%3Aw%C3%B6rd", BASIC, BASIC[6:], "token-1")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.fixture
def cache() -> Iterator[Cache]:
    with http_server.running() as cache:
        cache.blobs[f"/cas/{BLOB.hash}"] = CONTENT
        yield cache


def downloaded(remote: Transport, digest: Digest = BLOB) -> bytes | None:
    received: list[bytes] = []
    return b"".join(received) if remote.download(digest, received.append) else None


def error_of(action: Callable[[], object]) -> TransportError:
    with pytest.raises(TransportError) as caught:
        action()
    error = caught.value
    assert not any(secret in text for secret in SHOWN_SECRETS for text in (str(error), repr(error)))
    assert error.__cause__ is None
    return error


def with_user(address: str) -> str:
    return address.replace("://", "://me:pass%3Aw%C3%B6rd@")


# Who one is


def test_a_user_in_the_address_is_told_and_never_shown(cache: Cache) -> None:
    cache.authorization = BASIC
    remote = connect(with_user(cache.address), SHA256)
    assert downloaded(remote) == CONTENT
    assert remote.address == cache.address
    cache.authorization = "another"
    assert error_of(lambda: downloaded(remote)).kind is ErrorKind.DENIED
    assert not any(secret in repr(vars(remote)["_address"]) for secret in SHOWN_SECRETS)
    remote.close()


def test_netrc_tells_the_host_that_it_names_and_no_other(cache: Cache, tmp_path: Path) -> None:
    cache.authorization = BASIC
    netrc = tmp_path / "netrc"
    netrc.write_text(f'default login nobody password secret\nmachine 127.0.0.1 login me password "{SECRET}"\n')
    remote = connect(cache.address, SHA256)
    assert downloaded(remote) == CONTENT
    netrc.write_text(f'machine example.com login me password "{SECRET}"\ndefault login me password "{SECRET}"\n')
    other = connect(cache.address, SHA256)
    assert error_of(lambda: downloaded(other)).kind is ErrorKind.DENIED
    assert "Authorization" not in cache.log[-1].headers
    netrc.write_text(f"machine 127.0.0.1 {SECRET}\n")
    error = error_of(lambda: connect(cache.address, SHA256))
    assert error.kind is ErrorKind.DENIED
    assert str(netrc) in error.message
    for transport in (remote, other):
        transport.close()


def test_a_header_that_is_set_counts_more_than_the_address(cache: Cache) -> None:
    settings = ServerSettings(headers=(("Authorization", "Bearer token-1"), ("X-Team", "compilers")))
    remote = connect(with_user(cache.address), SHA256, settings)
    assert downloaded(remote) == CONTENT
    assert cache.log[-1].headers["Authorization"] == "Bearer token-1"
    assert cache.log[-1].headers["X-Team"] == "compilers"
    assert "token-1" not in repr(settings)
    remote.close()


@pytest.mark.parametrize(
    "address",
    [
        "ftp://me:pass%3Aw%C3%B6rd@host/",
        "http://me:pass%3Aw%C3%B6rd@/x",
        "http://me:pass%3Aw%C3%B6rd@host:port/",
        "http://me:pass%3Aw%C3%B6rd@host:99999/",
        "http://me:pass%3Aw%C3%B6rd@host/cache?token=token-1",
        "http://me:pass%3Aw%C3%B6rd@host/a b",
        "http://me:pass%3Aw%C3%B6rd@[::1/",
        "me:pass%3Aw%C3%B6rd@host",
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_it(address: str) -> None:
    assert error_of(lambda: connect(address, SHA256)).kind is ErrorKind.DENIED


@pytest.mark.parametrize("header", [("Bad name", "x"), ("X", "a\r\nInjected: yes"), ("X", "é")])
def test_a_header_cannot_smuggle_another(header: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="header"):
        ServerSettings(headers=(header,))


# Redirects


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_download_follows_a_redirect_without_credentials_to_another_host(cache: Cache, code: int) -> None:
    with http_server.running() as front:
        front.faults.append(http_server.redirect(cache.address, code))
        settings = ServerSettings(headers=(("X-Api-Key", "token-1"),))
        remote = connect(with_user(front.address), SHA256, settings)
        assert downloaded(remote) == CONTENT
        assert {"Authorization", "X-Api-Key"} <= front.log[-1].headers.keys()
        assert not {"Authorization", "X-Api-Key"} & cache.log[-1].headers.keys()
        remote.close()


def test_a_redirect_within_the_host_keeps_credentials(cache: Cache) -> None:
    cache.blobs[f"/new/cas/{BLOB.hash}"] = CONTENT
    cache.authorization = BASIC
    moved = http_server.redirect("/new")
    cache.faults.append(lambda handler: not handler.path.startswith("/new/") and moved(handler))
    remote = connect(with_user(cache.address), SHA256)
    assert downloaded(remote) == CONTENT
    remote.close()


def test_uploads_and_questions_follow_no_redirect(cache: Cache, tmp_path: Path) -> None:
    with http_server.running() as front:
        front.faults.append(http_server.redirect(cache.address))
        remote = connect(front.address, SHA256)
        (tmp_path / "blob").write_bytes(CONTENT)
        for call in (lambda: remote.upload(BLOB, tmp_path / "blob"), lambda: remote.missing([BLOB])):
            assert error_of(call).kind is ErrorKind.UNUSABLE
        remote.close()
    assert not cache.log


def test_redirects_end(cache: Cache) -> None:
    cache.faults.append(http_server.redirect(""))
    remote = connect(cache.address, SHA256)
    assert "redirects" in error_of(lambda: downloaded(remote)).message
    assert len(cache.log) <= 6
    cache.faults[:] = [http_server.redirect("ftp://host/token-1")]
    assert error_of(lambda: downloaded(remote)).kind is ErrorKind.UNUSABLE
    remote.close()


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-signed for 127.0.0.1, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=cache"
    options += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out certificate.pem"
    subprocess.run(["openssl", "req", *options.split()], cwd=folder, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "certificate.pem").read_bytes())
    return both


def test_https_with_a_certificate_that_is_trusted(certificate: Path, tmp_path: Path) -> None:
    with http_server.running(certificate) as cache:
        trusting = ServerSettings(authorities=certificate.with_name("certificate.pem"))
        remote = connect(cache.address, SHA256, trusting)
        content = os.urandom(3 << 20)
        (tmp_path / "blob").write_bytes(content)
        digest = SHA256.of_bytes(content)
        assert remote.upload(digest, tmp_path / "blob")
        assert downloaded(remote, digest) == content
        assert remote.missing([digest, BLOB]) == (BLOB,)
        remote.close()


@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_what_tls_itself_sends_is_not_taken_for_an_answer(certificate: Path, tmp_path: Path, size: int) -> None:
    with http_server.running(certificate) as cache:
        content = os.urandom(size)
        (tmp_path / "blob").write_bytes(content)
        trusting = ServerSettings(authorities=certificate.with_name("certificate.pem"))
        for _ in range(5):
            cache.blobs.clear()
            remote = connect(cache.address, SHA256, trusting)
            assert remote.upload(SHA256.of_bytes(content), tmp_path / "blob")
            assert list(cache.blobs.values()) == [content]
            remote.close()


def test_https_with_a_certificate_that_is_not_trusted_is_refused(certificate: Path) -> None:
    with http_server.running(certificate) as cache:
        remote = connect(with_user(cache.address), SHA256)
        error = error_of(lambda: downloaded(remote))
        assert error.kind is ErrorKind.DENIED
        assert "not trusted" in error.message
        assert not cache.log
        remote.close()


def test_https_to_a_port_that_speaks_http_is_refused(cache: Cache) -> None:
    remote = connect(cache.address.replace("http:", "https:"), SHA256)
    error = error_of(lambda: downloaded(remote))
    assert error.kind is ErrorKind.DENIED
    assert "http or https" in str(error)
    remote.close()


def test_a_download_is_not_led_from_https_to_http(cache: Cache, certificate: Path) -> None:
    with http_server.running(certificate) as front:
        front.faults.append(http_server.redirect(cache.address))
        remote = connect(front.address, SHA256, ServerSettings(authorities=certificate.with_name("certificate.pem")))
        assert "https to http" in error_of(lambda: downloaded(remote)).message
        remote.close()
    assert not cache.log


def test_certificates_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nonsense.pem").write_text("nonsense")
    for file in (tmp_path / "nonsense.pem", tmp_path / "absent.pem"):
        settings = ServerSettings(authorities=file)
        assert error_of(lambda settings=settings: connect("https://host", SHA256, settings)).kind is ErrorKind.DENIED  # type: ignore[misc]


# Proxies


def tunnel(handler: http_server.Handler) -> bool:
    """What a proxy does for CONNECT: bytes both ways until one side ends."""
    if handler.command != "CONNECT":
        return False
    host, _, port = handler.path.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as there:
        handler.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        here = handler.connection
        while True:
            for side in select.select([here, there], [], [], 10)[0]:
                piece = side.recv(1 << 16)
                if not piece:
                    handler.close_connection = True
                    return True
                (there if side is here else here).sendall(piece)


def test_http_goes_by_the_proxy_of_the_environment(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server.running() as proxy:
        proxy.blobs[f"http://cache.example/cas/{BLOB.hash}"] = CONTENT
        monkeypatch.setenv("http_proxy", with_user(proxy.address))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        remote = connect("http://cache.example", SHA256)
        assert downloaded(remote) == CONTENT
        assert proxy.log[-1].headers["Proxy-Authorization"] == BASIC
        assert proxy.log[-1].headers["Host"] == "cache.example"
        direct = connect(cache.address, SHA256)
        assert downloaded(direct) == CONTENT
        assert len(proxy.log) == 1
        for transport in (remote, direct):
            transport.close()


def test_https_goes_through_a_tunnel(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server.running(certificate) as cache, http_server.running() as proxy:
        cache.blobs[f"/cas/{BLOB.hash}"] = CONTENT
        proxy.faults.append(tunnel)
        monkeypatch.setenv("https_proxy", with_user(proxy.address))
        settings = ServerSettings(
            headers=(("Authorization", "Bearer token-1"),), authorities=certificate.with_name("certificate.pem")
        )
        remote = connect(cache.address, SHA256, settings)
        assert downloaded(remote) == CONTENT
        assert downloaded(remote) == CONTENT
        assert [asked.method for asked in proxy.log] == ["CONNECT"]
        assert "Authorization" not in proxy.log[0].headers
        assert "Proxy-Authorization" not in cache.log[0].headers
        remote.close()


def test_a_proxy_that_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server.running() as proxy:
        proxy.faults.append(http_server.status(407, times=-1))
        monkeypatch.setenv("https_proxy", with_user(proxy.address))
        remote = connect("https://cache.example", SHA256, ServerSettings(deadlines=Deadlines(connect=2)))
        error = error_of(lambda: downloaded(remote))
        assert error.kind is ErrorKind.DENIED
        assert "proxy" in error.message
        remote.close()
    monkeypatch.setenv("https_proxy", "socks5://me:pass%3Aw%C3%B6rd@host")
    assert error_of(lambda: connect("https://cache.example", SHA256)).kind is ErrorKind.DENIED
