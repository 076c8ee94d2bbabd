"""A stand-in for the service: prints readiness lines, answers a little, ends as it is told to.

Only what service.py must be proved against: output, ports, signals, environment.
Run by test_service.py.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import socketserver
import sys
import threading


class Answering(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_CONNECT(self) -> None:
        if self.path.startswith("evil"):
            body = b'{"error": "blocked-by-allowlist"}'
            self.send_response_only(403, f"Forbidden; egress denied for {self.path}")
            self.send_header("X-Proxy-Error", "blocked-by-allowlist")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.send_response_only(200, "Connection Established")
            self.end_headers()
            while block := self.rfile.read1(65_536):
                self.wfile.write(block)
        self.close_connection = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        heard = {"path": self.path, "body": body.decode(), "headers": dict(self.headers)}
        answer = json.dumps(heard).encode()
        self.send_response_only(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        return


def main() -> None:
    told = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: os._exit(int("--bad-exit" in told)))
    if "--crash" in told:
        raise RuntimeError("this must be seen")
    if "--refuse" in told:
        sys.exit("error: no such setting")
    if "--trace" in told:
        print("Traceback (most recent call last): …", file=sys.stderr, flush=True)
    if "--silent" in told:
        signal.pause()
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    print(f"EGRESS_PROXY_PORT={server.server_address[1]}", flush=True)
    if "--control-token-env" in told:
        print(f"EGRESS_CONTROL_PORT={server.server_address[1]}", flush=True)
    said = {"argv": told, "env": dict(os.environ), "cwd": os.getcwd()}
    print(f"SAID {json.dumps(said)}", flush=True)
    if "--die" in told:
        threading.Timer(0, os._exit, [7]).start()
    server.serve_forever()


main()
