#!/usr/bin/env python3
"""From a job to an alert in Alertmanager: right rank, right class, right site; and silence.

The real daemon, agent and Alertmanager, on the simulated stack; all jobs run under one daemon at
once. Usage: verdict_faults_test.py TEST; TIDEMARK_BUILD is the build folder.
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
import time
import urllib.error
import urllib.request

BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
PATIENCE = 150  # seconds; a loaded machine is slower than the promise

# Scenario -> class of the leak, the function that allocates ("" where no site can be known).
FAULTS = {
    "zero-init-cat": ("fw_live", "ConcatenateWeights"),
    "one-rank": ("fw_live", "KeepLossWithGraph"),
    "late-onset": ("fw_live", "KeepLossWithGraph"),
    "eval-leak": ("fw_live", "KeepLossWithGraph"),
    "raw-cuda": ("device", "AllocateKernelWorkspace"),
    "vmm": ("vmm", "MapMoreMemory"),
    "pinned": ("pinned", "StageThroughPinned"),
    "async-pool": ("pool", "AllocateStreamOrdered"),
    "host": ("fw_host", "KeepCpuTensors"),
    "heap": ("anon", ""),
    "mmap": ("anon", ""),
    "shm": ("shmem", ""),
}
HEALTHY = ("steady", "fragmentation", "warmup", "sawtooth", "subgroups", "two-optimizers",
           "accumulate", "stack-limit")


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
            os.environ, TIDEMARK_SIM_STATE=str(self.folder / "sim"), TIDEMARK_SIM_DEVICES="8",
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

    def start_daemon(self):
        config = self.folder / "tidemarkd.yaml"
        config.write_text(f'alerts: {{alertmanager: "http://127.0.0.1:{self.port}", resend: 5s}}\n')
        ready, theirs = os.pipe()
        self.start([BUILD / "bin/tidemarkd", "--private", "--config", config, "--agent-socket",
                    self.folder / "agent.sock", "--api-socket", self.folder / "api.sock", "--http",
                    "127.0.0.1:0", "--no-bpf", "--exit-when-idle", "0", "--ready-fd", str(theirs)],
                   "tidemarkd.log", pass_fds=[theirs],
                   env=dict(self.environment, LD_LIBRARY_PATH=str(BUILD / "sim")))
        os.close(theirs)
        with os.fdopen(ready) as pipe:
            assert pipe.readline().startswith("http://"), (self.folder / "tidemarkd.log").read_text()

    def start_alertmanager(self):
        config = self.folder / "alertmanager.yml"
        config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
        self.start(["prometheus-alertmanager", f"--config.file={config}",
                    f"--storage.path={self.folder / 'am'}", "--cluster.listen-address=",
                    f"--web.listen-address=127.0.0.1:{self.port}"], "alertmanager.log")

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

    def leaks(self):
        return [a for a in self.alerts() or []
                if a["labels"]["alertname"] == "TidemarkMemoryLeak"]

    def logs(self):
        return "\n".join((self.folder / log).read_text()[-1500:]
                         for log in ("tidemarkd.log", "alertmanager.log"))


def twelve_faults_are_alerts_that_name_rank_class_and_site(folder):
    with Node(folder) as node:
        node.start_daemon()
        begin = time.monotonic()
        for scenario in FAULTS:
            steps = "240" if scenario == "late-onset" else "100000"
            # Few enough tensors a second for a native stack of each.
            node.start_job(scenario, "--ranks", "2", "--layers", "2", "--leak-rank", "1", "--steps",
                           steps, "--step-ms", "60", "--leak-bytes", "8MiB", "--scenario", scenario)
        # It comes up only after the daemon has tried to reach it.
        node.start_alertmanager()
        found = {}
        while len(found) < len(FAULTS) and time.monotonic() < begin + PATIENCE:
            for alert in node.leaks():
                labels = alert["labels"]
                job = labels["training_job"]
                if labels["class"] == FAULTS[job][0] and job not in found:
                    found[job] = alert
                    print(f"{job}: {labels} after {time.monotonic() - begin:.0f} s", flush=True)
            time.sleep(0.5)
        seen = node.leaks()
        missing = sorted(set(FAULTS) - set(found))
        assert not missing, (missing, [a["labels"] for a in seen], node.logs())
        for job, (memory_class, function) in FAULTS.items():
            labels = found[job]["labels"]
            expected = {"alertname", "training_job", "class", "scope", "node", "rank"}
            expected |= {"site"} if function else set()
            assert expected <= set(labels) <= expected | {"site"}, labels
            assert labels["rank"] == "1" and labels["scope"] == "rank", labels
            assert labels["node"] == socket.gethostname(), labels
            description = found[job]["annotations"]["description"]
            assert function in description, (job, description)
            assert found[job]["annotations"]["runbook_url"].startswith("docs/runbooks/")
        # Nobody else: no rank that does not leak, and no second alert for the same growth.
        for alert in seen:
            assert alert["labels"]["rank"] == "1", alert["labels"]
            assert alert["labels"]["class"] == FAULTS[alert["labels"]["training_job"]][0], alert


def healthy_jobs_of_2000_steps_raise_no_alert(folder):
    with Node(folder) as node:
        node.start_alertmanager()
        node.start_daemon()
        jobs = [node.start_job(scenario, "--ranks", "1", "--steps", "2000", "--step-ms", "8",
                               "--leak-bytes", "8MiB", "--scenario", scenario)
                for scenario in HEALTHY]
        end = time.monotonic() + PATIENCE
        while any(job.poll() is None for job in jobs):
            assert time.monotonic() < end, "the jobs do not come to an end"
            assert not node.leaks(), [a["labels"] for a in node.leaks()]
            time.sleep(1)
        assert [job.returncode for job in jobs] == [0] * len(jobs)
        # The last snapshots are judged and pushed within a few ticks.
        for _ in range(5):
            time.sleep(1)
            alerts = node.alerts()
            assert alerts is not None, node.logs()
            assert not node.leaks(), [a["labels"] for a in node.leaks()]


TESTS = {function.__name__: function for function in (
    twelve_faults_are_alerts_that_name_rank_class_and_site,
    healthy_jobs_of_2000_steps_raise_no_alert)}


def main():
    if shutil.which("prometheus-alertmanager") is None:
        print("skipped: prometheus-alertmanager is not installed; ./setup installs it")
        return 77
    with tempfile.TemporaryDirectory(prefix="tidemark-verdict-", ignore_cleanup_errors=True) as folder:
        TESTS[sys.argv[1]](folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
