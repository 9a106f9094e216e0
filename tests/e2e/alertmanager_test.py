#!/usr/bin/env python3
"""From a job to an alert in Alertmanager, pushed by the daemon.

The real daemon, agent and Alertmanager, on the simulated stack. Usage: alertmanager_test.py TEST;
TIDEMARK_BUILD is the build folder.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
PATIENCE = 150  # seconds; a loaded machine is slower than the promise


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Node:
    """A daemon that pushes, the Alertmanager it pushes to, and the jobs; ends what it started."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.port = free_port()
        self.started = []
        self.jobs = []
        self.environment = dict(
            os.environ, TIDEMARK_SIM_STATE=str(self.folder / "sim"),
            XDG_RUNTIME_DIR=str(self.folder),
            TIDEMARK_AGENT_SOCKET=str(self.folder / "agent.sock"),
            CUDA_INJECTION64_PATH=str(BUILD / "lib/libtidemark_cupti.so"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.jobs + self.started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def start(self, command, log, **options):
        with open(self.folder / log, "ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True,
                                       **options)
        self.started.append(process)
        return process

    def start_daemon(self):
        config = self.folder / "tidemarkd.yaml"
        config.write_text(f'alerts: {{alertmanager: "http://127.0.0.1:{self.port}", resend: 2s}}\n')
        ready, theirs = os.pipe()
        self.start([BUILD / "bin/tidemarkd", "--private", "--config", config, "--agent-socket",
                    self.folder / "agent.sock", "--api-socket", self.folder / "api.sock", "--http",
                    "127.0.0.1:0", "--no-bpf", "--exit-when-idle", "0", "--ready-fd", str(theirs)],
                   "tidemarkd.log", pass_fds=[theirs],
                   env=dict(self.environment, LD_LIBRARY_PATH=str(BUILD / "sim")))
        os.close(theirs)
        with os.fdopen(ready) as pipe:
            self.url = pipe.readline().strip()
        assert self.url.startswith("http://"), (self.folder / "tidemarkd.log").read_text()

    def start_alertmanager(self):
        config = self.folder / "alertmanager.yml"
        config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
        return self.start(
            ["prometheus-alertmanager", f"--config.file={config}",
             f"--storage.path={self.folder / 'am'}", "--cluster.listen-address=",
             f"--web.listen-address=127.0.0.1:{self.port}"], "alertmanager.log")

    def kill(self, process):
        self.started.remove(process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def start_job(self, name, *arguments):
        job = subprocess.Popen([BUILD / "bin/simtrain", *arguments], start_new_session=True,
                               env=dict(self.environment, TIDEMARK_JOB=name),
                               stdout=subprocess.DEVNULL)
        self.jobs.append(job)
        return job

    def alerts(self):
        """What Alertmanager holds; None while it does not answer."""
        try:
            with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port}/api/v2/alerts", timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def alerts_source(self):
        """What the daemon says of its push: state and reason."""
        snapshot = self.url.removesuffix("/metrics") + "/api/v1/snapshot?max_sites=1"
        with urllib.request.urlopen(snapshot, timeout=60) as answer:
            sources = json.load(answer)["sources"]
        [source] = [s for s in sources if s["name"] == "alertmanager"]
        return {"reason": "", **source}

    def leaks(self):
        return [a for a in self.alerts() or []
                if a["labels"]["alertname"] == "TidemarkMemoryLeak"]

    def logs(self):
        return "\n".join((self.folder / log).read_text()[-1500:]
                         for log in ("tidemarkd.log", "alertmanager.log")
                         if (self.folder / log).exists())


class Stub:
    """Stands where Alertmanager should: answers `answer` to each message; None = never answers."""

    def __init__(self, port, answer):
        self.answer = answer
        self.messages = 0
        self.open = []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            if peer.recv(65536).startswith(b"POST /api/v2/alerts"):
                self.messages += 1
            if self.answer is None:
                self.open.append(peer)
            else:
                peer.sendall(self.answer)
                peer.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for peer in self.open:
            peer.close()


def until(condition, what, node):
    end = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, (what, node.logs())
        time.sleep(0.2)


def alerts_reach_an_alertmanager_that_is_absent_failing_slow_and_restarted(folder):
    with Node(folder) as node:
        node.start_daemon()
        # Few enough tensors a second for a native stack of each.
        node.start_job("zero-init", "--ranks", "2", "--layers", "2", "--steps", "100000",
                       "--step-ms", "60", "--leak-bytes", "8MiB", "--scenario", "zero-init-cat")
        until(lambda: "connect to 127.0.0.1" in node.alerts_source()["reason"],
              "an absent server is a reason", node)
        failing = Stub(node.port, b"HTTP/1.1 500 Internal Server Error\r\n\r\n")
        until(lambda: "HTTP/1.1 500" in node.alerts_source()["reason"],
              "what it answers is a reason", node)
        assert failing.messages > 0
        failing.close()
        slow = Stub(node.port, None)
        until(lambda: "does not answer" in node.alerts_source()["reason"],
              "a server that does not answer is a reason", node)
        slow.close()

        for life in ("first", "second, with nothing stored"):
            alertmanager = node.start_alertmanager()
            alert = until(node.leaks, f"the alert in its {life} life", node)[0]
            until(lambda: node.alerts_source()["state"] == "on", "the source is on again", node)
            assert alert["labels"] == {"alertname": "TidemarkMemoryLeak", "class": "fw_live",
                                       "scope": "job", "training_job": "zero-init"}, alert
            texts = alert["annotations"]
            assert texts["ranks"] == "0, 1" and texts["node"] == socket.gethostname(), texts
            assert texts["runbook_url"] == "docs/runbooks/tensors-kept.md", texts
            assert len(node.leaks()) == 1, node.leaks()
            # Told as soon as the growth of one site explains it; the alert may be earlier.
            until(lambda: any("ConcatenateWeights" in a["annotations"]["description"]
                              for a in node.leaks()), "the site of the leak", node)
            node.kill(alertmanager)
            shutil.rmtree(node.folder / "am")


TESTS = {function.__name__: function for function in (
    alerts_reach_an_alertmanager_that_is_absent_failing_slow_and_restarted,)}


def main():
    if shutil.which("prometheus-alertmanager") is None:
        print("skipped: prometheus-alertmanager is not installed; ./setup installs it")
        return 77
    with tempfile.TemporaryDirectory(prefix="tidemark-verdict-", ignore_cleanup_errors=True) as folder:
        TESTS[sys.argv[1]](folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
