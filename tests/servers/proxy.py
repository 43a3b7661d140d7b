"""An HTTP proxy for apt in the machines: GET only, Debian's mirror only."""

from __future__ import annotations

import contextlib
import http.server
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

__all__ = ["proxy"]

HOSTS = ("http://deb.debian.org/", "http://security.debian.org/")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if not self.path.startswith(HOSTS):
            self.send_error(403)
            return
        asked = {name: value for name, value in self.headers.items() if name.lower() in ("if-modified-since", "range")}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.path, headers=asked), timeout=60) as answer:
                self.send_response(answer.status)
                for name in ("Content-Length", "Last-Modified", "Content-Type", "Content-Range"):
                    if answer.headers[name]:
                        self.send_header(name, answer.headers[name])
                self.end_headers()
                shutil.copyfileobj(answer, self.wfile)
        except urllib.error.HTTPError as error:
            self.send_response(error.code)
            self.send_header("Content-Length", "0")
            self.end_headers()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def proxy(address: str, port: int) -> Iterator[None]:
    with http.server.ThreadingHTTPServer((address, port), _Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
