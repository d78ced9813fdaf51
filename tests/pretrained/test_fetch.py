"""Downloads from servers that are slow, plain, curious or endless."""

import base64
import http.server
import json
import re
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from gssc.checks import LONGEST
from gssc.pretrained import fetch
from gssc.pretrained.find import download
from gssc.pretrained.manifest import make_manifest

CERTIFICATE = Path(__file__).with_name("localhost.pem")  # self-made, for 127.0.0.1, trusted by these tests alone
FILES = {"model.safetensors": bytes(range(256)) * 1000, "config.yaml": b"name: x\n"}
MANIFEST = make_manifest("x", FILES)


class Handler(http.server.BaseHTTPRequestHandler):
    """What each server does is told by the first folder of the path."""

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        _, kind, *rest = self.path.partition("?")[0].split("/")
        if kind == "plain":
            self.redirect(f"http://127.0.0.1:{self.server.plain}/model/{rest[-1]}")
        elif kind == "loop":
            self.redirect(self.path)
        elif kind == "elsewhere":
            self.redirect(f"https://127.0.0.1:{self.server.server_port}/good/{rest[-1]}")
        elif kind == "headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            self.drip(b"X-Slow: very\r\n" * 50)
        elif kind == "body":
            self.send_response(200)
            self.end_headers()
            self.drip(MANIFEST)
        elif kind in ("good", "endless") and rest[-1] in {**FILES, "manifest.json": b""}:
            self.send_response(200)
            self.end_headers()
            self.wfile.write({**FILES, "manifest.json": MANIFEST}[rest[-1]])
            while kind == "endless" and rest[-1] != "manifest.json":
                self.wfile.write(bytes(1 << 16))
        elif kind == "many":
            files = {f"file{i}": {"bytes": 0, "sha256": "0" * 64} for i in range(8000)}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"format": 1, "name": "x", "files": files}).encode())
        else:
            self.send_error(404)

    def redirect(self, where):
        self.send_response(302)
        self.send_header("Location", where)
        self.end_headers()

    def drip(self, data):
        for byte in data:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.05)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that goes away is what is asked for."""


@pytest.fixture
def servers(monkeypatch):
    """One by https, which knows one by http."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    secure, plain = (Server(("127.0.0.1", 0), Handler) for _ in range(2))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    secure.plain = plain.server_port
    for server in (secure, plain):
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield secure, plain
    for server in (secure, plain):
        server.shutdown()
        server.server_close()


@pytest.fixture
def get(servers, tmp_path):
    """Download from a path of the server by https, into a cache of its own."""

    def get(path: str, user: str = "") -> Path:
        url = f"https://{user}127.0.0.1:{servers[0].server_port}/{path}"
        trusting = ssl.create_default_context(cafile=CERTIFICATE)
        return download(url, cache=tmp_path, context=trusting)

    return get


def refused(get, tmp_path, path: str, user: str = "") -> str:
    with pytest.raises(ValueError, match=r"expected ") as caught:
        get(path, user)
    assert not [*(tmp_path / "pretrained").iterdir()]
    assert len(str(caught.value)) <= LONGEST
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_files_arrive_whole(get, servers):
    folder = get("elsewhere/model/")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {**FILES, "manifest.json": MANIFEST}
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]


def test_no_plain_host_is_contacted(get, servers, tmp_path):
    assert "leads to http" in refused(get, tmp_path, "plain/model")
    assert servers[1].asked == []
    with pytest.raises(ValueError, match="scheme of the URL"):
        download(f"http://127.0.0.1:{servers[1].server_port}/good/model", cache=tmp_path)
    assert servers[1].asked == []


def test_a_server_that_nobody_vouches_for(servers, tmp_path):
    with pytest.raises(ValueError, match="CERTIFICATE_VERIFY_FAILED"):
        download(f"https://127.0.0.1:{servers[0].server_port}/good/model", cache=tmp_path)


@pytest.mark.parametrize("kind", ["headers", "body", "silent"])
def test_slow_servers_are_left(get, servers, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(fetch, "GRACE", 0.5)
    start = time.monotonic()
    if kind == "silent":  # not even TLS
        with socket.create_server(("127.0.0.1", 0)) as silent:
            line = refused(
                lambda *_: download(f"https://127.0.0.1:{silent.getsockname()[1]}/x", cache=tmp_path), tmp_path, ""
            )
    else:
        line = refused(get, tmp_path, f"{kind}/model")
    assert re.search(r"expected 0\.5 s and at least 131,072 bytes in each further one, got less from", line)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("endless/model", "expected 8 bytes"),
        ("many/model", "at most 100 files, got 8000"),
        ("loop/model", "redirect error"),
        ("none/model", "Not Found"),
    ],
)
def test_more_than_was_announced(get, tmp_path, path, message):
    assert message in refused(get, tmp_path, path)


def test_secrets_are_sent_to_their_host_alone_and_never_shown(get, servers, tmp_path):
    for path in ("none/model?token=hidden", "plain/model?token=hidden", "a b/model?token=hidden"):
        line = refused(get, tmp_path, path, "user:secret@")
        assert "secret" not in line
        assert "hidden" not in line
    get("good/model?token=hidden", "user:secret@")
    wanted = "Basic " + base64.b64encode(b"user:secret").decode()
    assert {headers.get("Authorization") for path, headers in servers[0].asked if "good" in path} == {wanted}
    assert all(path.endswith("?token=hidden") for path, _ in servers[0].asked)
