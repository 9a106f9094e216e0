#!/usr/bin/env python3
"""tls_test.py NAME: the daemon to other machines: TLS, certificates that are wrong, expired, absent
or replaced, and what is refused without TLS.

Exit status 0 passes, 77 skips (after saying why), anything else fails.
"""
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
PATIENCE = 60


def check(condition, message):
    if not condition:
        sys.exit(message)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Authority:
    """A CA in a folder of its own; makes certificates for clients and servers."""

    def __init__(self, folder, name):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.certificate = self.folder / "ca.crt"
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                     "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", f"/CN={name}")

    def openssl(self, *arguments):
        done = subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True,
                              text=True)
        check(done.returncode == 0, f"openssl {arguments}: {done.stderr}")

    def issue(self, name, *dates):
        """(certificate, key), valid from now for two days or between `dates`."""
        (self.folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                     "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        if dates:
            # x509 of OpenSSL 3.0 takes no dates: the small CA does.
            (self.folder / "index").write_text("")
            (self.folder / "serial").write_text("01\n")
            (self.folder / "ca.cnf").write_text(
                "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\n"
                "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
            self.openssl("ca", "-batch", "-config", "ca.cnf", "-cert", "ca.crt", "-keyfile", "ca.key",
                         "-in", f"{name}.csr", "-out", f"{name}.crt", "-startdate", dates[0],
                         "-enddate", dates[1], "-notext")
        else:
            self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                         "-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "san")
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"


class Daemon:
    """tidemarkd with TLS on both ports, from files that a test may replace."""

    def __init__(self, folder, authority, config=""):
        self.folder = pathlib.Path(folder)
        self.served = self.folder / "served"
        self.served.mkdir()
        self.api, self.http = free_port(), free_port()
        self.serve(authority)
        (self.folder / "config.yaml").write_text(config or (
            f"api: {{listen: '0.0.0.0:{self.api}'}}\n"
            f"http: {{listen: '0.0.0.0:{self.http}', tls: true}}\n"
            f"tls: {{certificate: {self.served}/tls.crt, key: {self.served}/tls.key, "
            f"client_ca: {self.served}/ca.crt}}\n"))

    def serve(self, authority):
        """Replaces the files as cert-manager does: each at once, none of them together."""
        certificate, key = authority.issue("server")
        for source, name in ((certificate, "tls.crt"), (key, "tls.key"),
                             (authority.certificate, "ca.crt")):
            shutil.copy(source, self.served / "new")
            os.replace(self.served / "new", self.served / name)

    def __enter__(self):
        ready, theirs = os.pipe()
        self.log = open(self.folder / "log", "w+")
        self.process = subprocess.Popen(
            [BUILD / "bin/tidemarkd", "--private", "--config", self.folder / "config.yaml",
             "--agent-socket", self.folder / "agent.sock", "--api-socket", self.folder / "api.sock",
             "--state", self.folder / "state", "--nvml", "off", "--no-bpf", "--exit-when-idle", "0",
             "--ready-fd", str(theirs)],
            pass_fds=[theirs], stderr=self.log)
        os.close(theirs)
        with os.fdopen(ready) as pipe:
            self.url = pipe.readline().strip()
        check(self.url.startswith("https://"), f"no HTTPS: {self.url} {self.text()}")
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        status = self.process.wait(PATIENCE)
        # A failure before this one says more.
        if kind is None:
            check(status == 0, f"the daemon ended with {status}: {self.text()}")

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def https(self, ca, client=None, path="/metrics"):
        context = ssl.create_default_context(cafile=ca)
        if client:
            context.load_cert_chain(*client)
        url = f"https://127.0.0.1:{self.http}{path}"
        with urllib.request.urlopen(url, context=context, timeout=20) as answer:
            return answer.read().decode()

    def grpc(self, ca, client=None):
        """The size of a snapshot, asked over TCP."""
        import grpc
        key = client and client[1].read_bytes()
        chain = client and client[0].read_bytes()
        credentials = grpc.ssl_channel_credentials(pathlib.Path(ca).read_bytes(), key, chain)
        with grpc.secure_channel(f"127.0.0.1:{self.api}", credentials,
                                 [("grpc.use_local_subchannel_pool", 1)]) as channel:
            return len(channel.unary_unary("/tidemark.v1.Tidemark/GetSnapshot")(b"", timeout=20))

    def act(self, ca, client):
        """The status of Detach(all) from another machine."""
        import grpc
        credentials = grpc.ssl_channel_credentials(pathlib.Path(ca).read_bytes(),
                                                   client[1].read_bytes(), client[0].read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{self.api}", credentials) as channel:
            try:
                channel.unary_unary("/tidemark.v1.Tidemark/Detach")(b"\x10\x01", timeout=20)
            except grpc.RpcError as error:
                return error.code().name
        return "OK"

    def refuses(self, ca, client):
        """Whether both ports end the connection of this client."""
        import grpc
        try:
            self.https(ca, client)
            return False
        except (ssl.SSLError, ConnectionError, urllib.error.URLError):
            pass
        try:
            self.grpc(ca, client)
            return False
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.UNAVAILABLE

    def answers(self, ca, client):
        import grpc
        try:
            return "tidemark_build_info" in self.https(ca, client) and self.grpc(ca, client) > 0
        except (OSError, grpc.RpcError):
            return False

    def wait_until(self, what, message):
        until = time.monotonic() + PATIENCE
        while not what():
            check(time.monotonic() < until, f"{message}\n{self.text()}")
            time.sleep(0.2)


def only_a_certificate_of_the_clients_ca_is_let_in():
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Authority(folder + "/ours", "ours"), Authority(folder + "/theirs", "theirs")
        good = ours.issue("client")
        expired = ours.issue("old", "20200101000000Z", "20200102000000Z")
        with Daemon(folder, ours) as daemon:
            ca = ours.certificate
            daemon.wait_until(lambda: daemon.answers(ca, good), "a good certificate is refused")
            check(daemon.refuses(ca, None), "nobody's certificate is let in")
            check(daemon.refuses(ca, expired), "an expired certificate is let in")
            check(daemon.refuses(ca, theirs.issue("client")), "a stranger's certificate is let in")
            check('"processes"' in daemon.https(ca, good, "/api/v1/snapshot"), "no JSON by certificate")
            check(daemon.act(ca, good) == "PERMISSION_DENIED", "another machine may detach")
            metrics = daemon.https(ca, good)
            refused = re.search(r'^tidemark_refused_requests_total{cause="tls_handshake"} (\d+)',
                                metrics, re.M)
            check(refused and int(refused[1]) >= 3, f"refusals are not counted: {refused}")
            # Not even the first byte of a plain request is answered.
            with socket.create_connection(("127.0.0.1", daemon.http), timeout=20) as plain:
                plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                check(b"tidemark" not in plain.recv(4096), "plain text on the TLS port")


def replaced_files_count_without_a_restart():
    with tempfile.TemporaryDirectory() as folder:
        before, after = Authority(folder + "/before", "before"), Authority(folder + "/after", "after")
        old, new = before.issue("client"), after.issue("client")
        with Daemon(folder, before) as daemon:
            daemon.wait_until(lambda: daemon.answers(before.certificate, old), "not up")
            pid = daemon.process.pid
            daemon.serve(after)
            daemon.wait_until(lambda: daemon.answers(after.certificate, new), "the new files are not read")
            check(daemon.refuses(after.certificate, old), "a client of the former CA is let in")
            check(daemon.process.pid == pid and daemon.process.poll() is None, "it restarted")


def while_a_file_is_rubbish_the_old_one_stays_in_use():
    with tempfile.TemporaryDirectory() as folder:
        ours = Authority(folder + "/ours", "ours")
        good = ours.issue("client")
        with Daemon(folder, ours) as daemon:
            def spoil(name, text):
                (daemon.served / "new").write_bytes(text)
                os.replace(daemon.served / "new", daemon.served / name)

            daemon.wait_until(lambda: daemon.answers(ours.certificate, good), "not up")
            for name in ("tls.crt", "tls.key", "ca.crt"):
                right = (daemon.served / name).read_bytes()
                _, other_key = ours.issue("other")
                for rubbish in (b"", b"rubbish\n", right[:len(right) // 2], other_key.read_bytes()):
                    spoil(name, rubbish)
                    # Each handshake looks at the files: the next ones have seen it.
                    for _ in range(2):
                        check(daemon.answers(ours.certificate, good),
                              f"{name} of {len(rubbish)} bytes shuts everybody out: {daemon.text()}")
                    check(daemon.refuses(ours.certificate, None), f"a bad {name} lets everybody in")
                spoil(name, right)
            # And what is good again counts.
            after = Authority(folder + "/after", "after")
            daemon.serve(after)
            daemon.wait_until(lambda: daemon.answers(after.certificate, after.issue("client")),
                              "the new files are not read")


def plain_text_beyond_loopback_is_refused():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for section, hint in (("api", "api.beyond_loopback"), ("http", "http.beyond_loopback")):
            config = folder / "config.yaml"
            config.write_text(f"{section}: {{listen: '0.0.0.0:0'}}\n")
            done = subprocess.run(
                [BUILD / "bin/tidemarkd", "--private", "--config", config, "--agent-socket",
                 folder / "agent.sock", "--api-socket", folder / "api.sock", "--nvml", "off",
                 "--no-bpf"], capture_output=True, text=True, timeout=60)
            check(done.returncode == 1 and hint in done.stderr, f"{section}: {done}")


def tls_settings_that_cannot_be_name_their_line():
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.yaml"
        for text, words in (
                ("log: {level: info}\ntls:\n  key: /k\n", [":3: tls", "go together"]),
                ("http:\n  tls: true\n", [":2: http.tls", "needs tls.certificate"]),
                ("api:\n  listen: here\n", [":2: api.listen", "ADDRESS:PORT"]),
                ("tls:\n  ca: /x\n", [":2: tls.ca", "no such key"])):
            config.write_text(text)
            done = subprocess.run([BUILD / "bin/tidemarkd", "--check-config", "--config", config],
                                  capture_output=True, text=True)
            check(done.returncode == 78 and all(word in done.stderr for word in words),
                  f"{text!r}: {done.stderr}")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
