#!/usr/bin/python3
"""As much of a kubelet and of an API server as etcdrun sees of them: which of the two it is, its own name tells.

The kubelet runs the manifest of the API server, and notices late that it has changed. The API server reads the CA of etcd when it starts,
its certificate at each connection, and is ready while it reaches etcd. Both write to a log when they did what."""

import http.server
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.request

MANIFESTS = "/etc/kubernetes/manifests"
LOG = "/var/log/kubernetes.log"


def log(what):
    with open(LOG, "a") as file:
        file.write(f"{time.time()} {what}\n")


def kubelet():
    text, server = None, None
    while True:
        for name in os.listdir(MANIFESTS):
            if name not in ("kube-apiserver.yaml", "other.yaml") and not name.startswith("."):
                log(f"stray {name}")
        with open(f"{MANIFESTS}/kube-apiserver.yaml") as file:
            now = file.read()
        if now != text:
            if server:
                time.sleep(2)
                log("stop")
                server.terminate()
                server.wait()
            words = re.findall(r"^    - (kube-apiserver|--\S+)$", now, re.M)
            server = subprocess.Popen(["/usr/local/bin/kube-apiserver"] + words[1:])
            text = now
        time.sleep(0.2)


def api_server():
    given = dict(word[2:].split("=", 1) for word in sys.argv[1:])
    etcd = ssl.create_default_context(cafile=given["etcd-cafile"])
    log("start")

    def reaches(url):
        try:
            etcd.load_cert_chain(given["etcd-certfile"], given["etcd-keyfile"])
            with urllib.request.urlopen(f"{url}/health", timeout=2, context=etcd) as answer:
                return answer.status == 200
        except OSError as error:
            print(url, error, flush=True)
            return False

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            ready = self.path == "/readyz" and any(reaches(url) for url in given["etcd-servers"].split(","))
            if ready:
                log("ready")
            self.send_response(200 if ready else 500)
            self.end_headers()
            self.wfile.write(b"ok" if ready else b"failed")

    # It takes its time, so that two of them that restart together would be seen.
    time.sleep(2)
    listener = http.server.ThreadingHTTPServer((given["advertise-address"], int(given["secure-port"])), Handler)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(given["tls-cert-file"], given["tls-private-key-file"])
    listener.socket = shown.wrap_socket(listener.socket, server_side=True)
    listener.serve_forever()


kubelet() if os.path.basename(sys.argv[0]) == "kubelet" else api_server()
