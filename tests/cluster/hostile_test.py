#!/usr/bin/env python3
"""hostile_test.py NAME: tidemarkd among users that mean harm: floods, other people's data, paths
out of its folder, and requests of random bytes. It must refuse, count, stay alive, and not grow.

Exit status 0 passes, 77 skips (after saying why), anything else fails.
"""
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from nodes import enter_sandbox, run

BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
PATIENCE = 60
NOBODY = 65534
FUZZ_SECONDS = float(os.environ.get("TIDEMARK_FUZZ_SECONDS", 4))
SEED = int(os.environ.get("TIDEMARK_FUZZ_SEED", 20261201))
GROWTH = 48 << 20  # of resident memory; a leak of one request's worth would be far more
SERVICE = "/tidemark.v1.Tidemark/"
METHODS = ("GetSnapshot", "ListHolders", "Detach", "QueryRange", "Diff", "ListPostmortems",
           "GetPostmortem")
STREAMS = ("WatchSnapshots", "Export")


def check(condition, message):
    if not condition:
        sys.exit(message)


def wait_until(what, message):
    until = time.monotonic() + PATIENCE
    while not what():
        check(time.monotonic() < until, message)
        time.sleep(0.3)


class Daemon:
    """tidemarkd on sockets and ports of its own, open to every user of the machine."""

    def __init__(self):
        self.place = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.place.name)
        self.folder.chmod(0o755)
        self.agent, self.api = self.folder / "agent.sock", self.folder / "api.sock"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.tcp = probe.getsockname()[1]
        config = self.folder / "config.yaml"
        config.write_text(
            f"agent: {{socket: {self.agent}}}\n"
            f"api: {{socket: {self.api}, listen: '127.0.0.1:{self.tcp}', "
            "group: tidemark-test-none}\n"
            f"http: {{listen: '127.0.0.1:0'}}\nstate: {{directory: {self.folder}/state}}\n"
            "bpf: {enabled: false}\n")
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(BUILD / "sim"),
                            "TIDEMARK_SIM_STATE": str(self.folder / "sim")}
        ready, theirs = os.pipe()
        self.log = open(self.folder / "log", "w+")
        self.process = subprocess.Popen(
            [BUILD / "bin/tidemarkd", "--config", config, "--ready-fd", str(theirs)],
            pass_fds=[theirs], env=self.environment, stderr=self.log)
        os.close(theirs)
        with os.fdopen(ready) as pipe:
            self.url = pipe.readline().strip()
        check(self.url.startswith("http://127.0.0.1:"), f"not up: {self.text()}")
        self.http = int(self.url.split(":")[2].split("/")[0])
        self.jobs = []

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for job in self.jobs:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        self.process.terminate()
        status = self.process.wait(PATIENCE)
        if kind is None:  # a failure before this one says more
            check(status == 0, f"the daemon ended with {status}: {self.text()}")
        self.place.cleanup()

    def text(self):
        self.log.seek(0)
        return self.log.read()[-3000:]

    def start_job(self, name, uid=0):
        state = self.folder / f"sim-{name}"
        state.mkdir()
        os.chown(state, uid, uid)
        self.jobs.append(subprocess.Popen(
            [BUILD / "bin/simtrain", "--ranks", "1", "--steps", "1000000", "--step-ms", "100",
             "--layers", "2"],
            env={**self.environment, "TIDEMARK_SIM_STATE": str(state), "TIDEMARK_JOB": name,
                 "TIDEMARK_AGENT_SOCKET": str(self.agent),
                 "CUDA_INJECTION64_PATH": str(BUILD / "lib/libtidemark_cupti.so")},
            user=uid, group=uid, stdout=subprocess.DEVNULL, start_new_session=True))

    def jobs_seen(self, uid=0):
        """Names of the test's jobs that this user is shown: by the command, and by HTTP."""
        def as_user(*command):
            done = subprocess.run([str(part) for part in command], user=uid, group=uid,
                                  extra_groups=[], capture_output=True, text=True, cwd="/")
            return json.loads(done.stdout) if done.returncode == 0 else {"processes": []}
        seen = []
        for answer in (as_user(BUILD / "bin/tidemark", "ps", "--json", "--socket", self.api),
                       as_user("/usr/bin/python3", "-c", "import sys, urllib.request as r; "
                               "print(r.urlopen(sys.argv[1]).read().decode())",
                               f"http://127.0.0.1:{self.http}/api/v1/snapshot")):
            seen.append({process["identity"]["training_job"] for process in answer["processes"]
                         if process["observed"]} & {"of-root", "of-nobody"})
        return seen

    def metrics(self):
        with urllib.request.urlopen(self.url, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def counted(self, metric):
        """{cause: count}"""
        return {cause: float(value) for cause, value in re.findall(
            rf'^{metric}{{cause="(\w+)"}} (\S+)$', self.metrics(), re.M)}

    def resident(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def is_well(self):
        check(self.process.poll() is None, f"it died: {self.text()}")
        health = f"http://127.0.0.1:{self.http}/healthz"
        with urllib.request.urlopen(health, timeout=PATIENCE) as answer:
            check(answer.status == 200, "it is not healthy")

    def survives(self, attack, metric, *causes):
        """Runs the attack twice: what the first one needs once is no growth."""
        before = self.counted(metric)
        idle = self.descriptors()
        attack(SEED)
        warm = self.resident()
        attack(SEED + 1)
        self.is_well()
        began = time.monotonic()
        wait_until(lambda: self.descriptors() <= idle + 4,
                   f"descriptors stay open: {idle}, then {self.descriptors()}")
        print(f"descriptors are back after {time.monotonic() - began:.1f} s")
        grown = self.resident() - warm
        check(grown < GROWTH, f"resident memory grew by {grown >> 20} MiB, from {warm >> 20}")
        after = self.counted(metric)
        more = {cause: after.get(cause, 0) - before.get(cause, 0) for cause in causes}
        check(all(count > 0 for count in more.values()), f"not counted: {more} of {after}")
        print(f"counted {more}; resident memory {warm >> 20} MiB, {grown / 2**20:+.1f} MiB")


def a_process_that_opens_ten_thousand_agent_connections_harms_nobody():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 12000), hard))
    with Daemon() as daemon:
        def attack(_):
            held = []
            for number in range(5000):
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO,
                                      struct.pack("ll", PATIENCE, 0))
                connection.connect(str(daemon.agent))  # waits while the queue is full
                held.append(connection)
                if number == 2500:
                    daemon.is_well()
            for connection in held:
                connection.close()

        daemon.survives(attack, "tidemark_losses_total", "agent_refused_limit")
        # All of one user's; and an honest agent is taken right after.
        daemon.start_job("of-nobody", NOBODY)
        wait_until(lambda: daemon.jobs_seen()[0] == {"of-nobody"}, "an honest agent is not taken")


def a_user_outside_the_group_sees_its_own_processes_only():
    with Daemon() as daemon:
        daemon.start_job("of-root")
        daemon.start_job("of-nobody", NOBODY)
        both = {"of-root", "of-nobody"}
        wait_until(lambda: daemon.jobs_seen() == [both, both], f"root sees {daemon.jobs_seen()}")
        own = daemon.jobs_seen(NOBODY)
        check(own == [{"of-nobody"}] * 2, f"nobody sees {own}")
        stranger = daemon.jobs_seen(NOBODY - 1)
        check(stranger == [set()] * 2, f"a third user sees {stranger}")


def no_path_leads_out_of_what_is_served():
    secret = "root:x:0:0"
    check(secret in pathlib.Path("/etc/passwd").read_text(), "no secret to look for")
    paths = ["/../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
             "/..%2f..%2f..%2fetc%2fpasswd", "/..%252f..%252fetc/passwd", "/....//....//etc/passwd",
             "/assets/../../../etc/passwd", "/assets/..%5c..%5cetc%5cpasswd", "/%00/etc/passwd",
             "/api/v1/../../etc/passwd", "/metrics/../../../etc/passwd", "/\\..\\..\\etc\\passwd",
             "/%c0%ae%c0%ae/%c0%ae%c0%ae/etc/passwd", "file:///etc/passwd", "/etc/passwd%00.html",
             "/api/v1/postmortem?id=../../../../etc/passwd", "/.htpasswd", "/proc/self/environ"]
    with Daemon() as daemon:
        before = daemon.counted("tidemark_refused_requests_total")
        for path in paths:
            with socket.create_connection(("127.0.0.1", daemon.http), PATIENCE) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                   "Connection: close\r\n\r\n".encode())
                answer = b""
                while chunk := connection.recv(65536):
                    answer += chunk
            # A path that ends at a zero byte may be the page's own.
            check("%00" in path or b"200" not in answer.split(b" ")[1:2], f"{path}: {answer[:200]}")
            check(secret.encode() not in answer, f"{path} is served")
        daemon.is_well()
        after = daemon.counted("tidemark_refused_requests_total")
        print(f"counted {after['bad_request'] - before['bad_request']:.0f} of {len(paths)}")
        check(after["bad_request"] > before["bad_request"], f"not counted: {after}")


def mutated(rng, seed):
    """The bytes with some changed, repeated, cut or added."""
    data = bytearray(seed)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.randint(1, 64))
        elif kind == 2:
            del data[at:at + rng.randint(1, 32)]
        elif kind == 3:
            data[at:at] = data[:at][-rng.randint(1, 64):] * rng.randint(1, 20)
        else:
            data[at:at] = rng.choice((b"\0", b"\r\n", b"\xff" * 9, b"%", b"A" * 5000, b"-1", b"\n"))
    return bytes(data)


def for_a_while(rng, once):
    until = time.monotonic() + FUZZ_SECONDS
    count = 0
    while time.monotonic() < until:
        once(rng)
        count += 1
    check(count > 20, f"only {count} requests")


def send_raw(family, address, data):
    """What a client may do at its worst: send it, read a little or nothing, go."""
    with socket.socket(family) as connection:
        connection.settimeout(0.2)
        try:
            connection.connect(address)
            connection.sendall(data)
            connection.recv(65536)
        except OSError:
            pass


def http_of_random_bytes_is_refused_and_counted():
    seeds = [b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n",
             b"GET /api/v1/snapshot?pids=1&max_sites=3&omit_steps=true HTTP/1.1\r\n"
             b"Host: localhost\r\n\r\n",
             b"GET /api/v1/query_range?start_unix_ns=1&end_unix_ns=99&limit=5 HTTP/1.1\r\n"
             b"Host: a\r\n\r\n",
             b"POST /api/v1/diff HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"
             b"{\"a\": 1}\n",
             b"GET / HTTP/1.0\r\nAuthorization: Bearer x\r\nTransfer-Encoding: chunked\r\n\r\n"
             b"5\r\nabcde\r\n0\r\n\r\n"]
    with Daemon() as daemon:
        def attack(seed):
            for_a_while(random.Random(seed), lambda rng: send_raw(
                socket.AF_INET, ("127.0.0.1", daemon.http), mutated(rng, rng.choice(seeds))))
        daemon.survives(attack, "tidemark_refused_requests_total", "bad_request")


def grpc_of_random_bytes_is_refused_and_counted():
    try:
        import grpc
    except ImportError:
        print("skipped: no grpc for Python here; install python3-grpcio")
        sys.exit(77)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    settings = b"\0\0\0\4\0\0\0\0\0"
    frames = [preface + settings, preface + settings + b"\0\0\4\1\4\0\0\0\1\x83\x86\x84\x41",
              preface + settings + b"\0\0\5\0\1\0\0\0\1\0\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n",
              preface + settings + b"\0\0\4\3\0\0\0\0\1\0\0\0\0" * 50]
    messages = [b"", b"\x0a\x02\x01\x02\x10\x05\x18\x05\x20\x01",
                b"\x08\x01\x10\x02\x18\x40\x22\x03abc", b"\x08\x80\x80\x80\x80\x08",
                b"\x0a\x0c0123456789ab\x12\x08\xff\xff\xff\xff\xff\xff\xff\x7f"]
    with Daemon() as daemon:
        def call(channel, rng):
            body = mutated(rng, rng.choice(messages))
            try:
                if rng.randrange(4):
                    channel.unary_unary(SERVICE + rng.choice(METHODS))(body, timeout=2)
                else:
                    for _ in channel.unary_stream(SERVICE + rng.choice(STREAMS))(body, timeout=0.2):
                        break
            except grpc.RpcError:
                pass

        def attack(seed):
            with grpc.insecure_channel(f"unix:{daemon.api}") as local, \
                    grpc.insecure_channel(f"127.0.0.1:{daemon.tcp}") as remote:
                def once(rng):
                    call(rng.choice((local, remote)), rng)
                    data = mutated(rng, rng.choice(frames))
                    send_raw(socket.AF_UNIX, str(daemon.api), data)
                    send_raw(socket.AF_INET, ("127.0.0.1", daemon.tcp), data)
                for_a_while(random.Random(seed), once)
        daemon.survives(attack, "tidemark_refused_requests_total", "bad_request")
        with grpc.insecure_channel(f"unix:{daemon.api}") as channel:
            ask = channel.unary_unary(SERVICE + "GetSnapshot")
            check(ask(b"", timeout=PATIENCE), "no snapshot")


if __name__ == "__main__":
    enter_sandbox()  # no other processes: neither their figures nor their descriptors
    run("ip", "link", "set", "lo", "up")
    globals()[sys.argv[1]]()
