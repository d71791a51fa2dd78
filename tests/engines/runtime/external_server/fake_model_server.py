"""Model server that is hard to end: it has a child process that outlives it and ignores SIGTERM.

`python fake_model_server.py PORT` prints `ready`, then answers 200 to everything.
"""

import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def main() -> None:
    port = int(sys.argv[1])
    if "--fail" in sys.argv:
        sys.exit("ValueError: no such model")
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], start_new_session="--escape" in sys.argv
    )
    server = HTTPServer(("127.0.0.1", port), Handler)
    print(f"ready {child.pid} {os.environ.get('MODEL_SERVER_KEY', '')}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
