#!/usr/bin/env python3
"""tidemarkd as a program: ready and gone in time, killed ranks, restarts in the middle.

Runs against the simulated stack with the real agent. Usage: daemon_test.py TEST; TIDEMARK_BUILD is
the build folder.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])


class Daemon:
    def __init__(self, folder, *flags):
        self.folder = pathlib.Path(folder)
        self.flags = flags
        self.start()

    def start(self):
        ready, theirs = os.pipe()
        environment = dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "sim"))
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [BUILD / "bin/tidemarkd", "--private", "--agent-socket", self.folder / "agent.sock",
             "--api-socket", self.folder / "api.sock", "--http", "127.0.0.1:0", "--ready-fd",
             str(theirs), *self.flags],
            pass_fds=[theirs], env=environment, stderr=self.log)
        os.close(theirs)
        with os.fdopen(ready) as pipe:
            self.url = pipe.readline().strip()
        assert self.url.startswith("http://127.0.0.1:"), (self.folder / "log").read_text()

    def snapshot(self):
        answer = subprocess.run(
            [BUILD / "bin/tidemark", "ps", "--json", "--socket", self.folder / "api.sock"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return json.loads(answer.stdout) if answer.returncode == 0 else {"processes": []}

    def wait_for(self, what, seconds=40):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = what(self.snapshot())
            if found:
                return found
            time.sleep(0.3)
        raise AssertionError("did not come about: " + (self.folder / "log").read_text()[-2000:])

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        begin = time.monotonic()
        status = self.process.wait(timeout=20)
        return status, time.monotonic() - begin


def start_job(folder, *arguments, **variables):
    environment = dict(os.environ, **variables, TIDEMARK_AGENT_SOCKET=str(pathlib.Path(folder) / "agent.sock"),
                       CUDA_INJECTION64_PATH=str(BUILD / "lib/libtidemark_cupti.so"))
    return subprocess.Popen([BUILD / "bin/simtrain", "--launcher", "torchrun", *arguments],
                            env=environment, stdout=subprocess.DEVNULL, start_new_session=True)


def end_job(job):
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    job.wait()


def ranks(snapshot, **wanted):
    return [p for p in snapshot["processes"]
            if p["identity"]["rank"] >= 0 and all(p.get(k) == v for k, v in wanted.items())]


def live(process, memory_class):
    return sum(int(t.get("live_bytes", 0)) for t in process["totals"]
               if t["memory_class"] == memory_class)


def regions_open(daemon):
    links = []
    for fd in pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        try:
            links.append(os.readlink(fd))
        except FileNotFoundError:
            pass
    return sum("memfd:tidemark" in link for link in links)


def stops_within_5_s(folder):
    daemon = Daemon(folder)
    job = start_job(folder, "--ranks", "2", "--steps", "100000", "--step-ms", "20")
    try:
        daemon.wait_for(lambda s: len(ranks(s, observed=True)) == 2)
        status, seconds = daemon.stop()
        assert status == 0, status
        assert seconds < 5, seconds
        assert not (daemon.folder / "agent.sock").exists()
        assert job.poll() is None, "the job must not notice"
    finally:
        end_job(job)


def a_killed_rank_keeps_its_last_state(folder):
    daemon = Daemon(folder)
    job = start_job(folder, "--ranks", "2", "--steps", "100000", "--step-ms", "20")
    try:
        alive = daemon.wait_for(
            lambda s: len(ranks(s, observed=True)) == 2 and all(
                int(p.get("current_step", 0)) > 10 for p in ranks(s)) and ranks(s))
        assert regions_open(daemon) == 2
        victim = alive[0]["pid"]
        os.kill(victim, signal.SIGKILL)
        killed_at = time.monotonic()
        dead = daemon.wait_for(
            lambda s: [p for p in s["processes"] if p["pid"] == victim and p["liveness"] == "killed"])
        assert dead[0]["exit_reason"] == "killed by SIGKILL", dead[0]["exit_reason"]
        assert live(dead[0], "fw_live") > 0
        assert dead[0]["waterfalls"], "the waterfall of the dead is missing"
        while regions_open(daemon) > 1 or not list(daemon.folder.glob("state/regions/*.region")):
            assert time.monotonic() - killed_at < 10, "the region is still held"
            time.sleep(0.2)
        assert list(daemon.folder.glob(f"state/regions/{victim}-*.region"))
    finally:
        end_job(job)
        daemon.stop()


def nothing_doubles_when_the_daemon_is_killed_and_started_again(folder):
    truth = pathlib.Path(folder) / "truth.jsonl"
    daemon = Daemon(folder)
    job = start_job(folder, "--ranks", "2", "--steps", "300", "--step-ms", "30", "--truth", truth)
    try:
        daemon.wait_for(lambda s: ranks(s) and all(
            int(p.get("current_step", 0)) > 20 for p in ranks(s, observed=True)))
        daemon.stop(signal.SIGKILL)
        time.sleep(1)
        daemon.start()
        daemon.wait_for(lambda s: len(ranks(s, observed=True)) == 2)
        assert job.wait(timeout=120) == 0
        ended = daemon.wait_for(lambda s: len(ranks(s, liveness="exited")) == 2 and ranks(s))
        steps = sorted(int(p["current_step"]) for p in ended)
        assert steps == [300, 300], steps
        told = [json.loads(line) for line in truth.read_text().splitlines()]
        assert len(told) == 2, told
        check_truth(ended, told)
    finally:
        end_job(job)
        daemon.stop()


def check_truth(ended, told):
    """What is live at the end is what the job itself added up, to the byte, and so is the peak."""
    by_rank = {int(t["rank"]): t for t in told}
    for process in ended:
        truth = by_rank[process["identity"]["rank"]]
        peak = [int(p["peak_bytes"]) for p in process["peaks"] if p["side"] == "framework"]
        seen = (live(process, "fw_live"), live(process, "fw_cache"), live(process, "device"), peak)
        wanted = (truth["fw_allocated"], truth["fw_reserved"] - truth["fw_allocated"],
                  truth["fw_reserved"], [truth["fw_max_allocated"]])
        assert seen == wanted, (truth["rank"], seen, wanted)


def a_daemon_started_only_afterwards_sees_everything(folder):
    job = start_job(folder, "--ranks", "2", "--steps", "100000", "--step-ms", "20")
    try:
        time.sleep(4)
        daemon = Daemon(folder)
        late = daemon.wait_for(lambda s: len(ranks(s, observed=True)) == 2 and ranks(s))
        assert all(int(p["current_step"]) > 20 for p in late)
        assert all(live(p, "fw_live") > 0 for p in late)
        daemon.stop()
    finally:
        end_job(job)


def other_bytes_have_names(folder):
    """What no framework allocated: each line of the waterfall says whose it is."""
    named = {  # scenario: class, name, bytes that it must account for
        "nccl": ("vmm", "communicator (libnccl.so.2): 160 MiB", 160 << 20),
        "expandable": ("vmm", "expandable segments", 0),
        "modules": ("unattributed", "module load: 66.0 MiB", 66 << 20),
        "stack-limit": ("unattributed", "stack limit: 3.87 GiB", 3960 << 20),
    }
    daemon = Daemon(folder)
    jobs = [start_job(folder, "--ranks", "1", "--steps", "150", "--step-ms", "50",
                      "--scenario", scenario, TIDEMARK_JOB=scenario) for scenario in named]

    def unnamed(snapshot):
        missing = dict(named)
        for process in ranks(snapshot):
            scenario = process["identity"]["training_job"]
            if scenario not in named:
                continue  # another job of this machine
            memory_class, name, size = named[scenario]
            for fall in process.get("waterfalls", []):
                lines = fall["lines"]
                context = sum(int(l["bytes"]) for l in lines if l["memory_class"] == "context")
                adds_up = sum(int(l["bytes"]) for l in lines) == int(fall["figure_bytes"])
                for line in lines:
                    if (line["memory_class"] == memory_class and name in line.get("note", "")
                            and int(line["bytes"]) == size and adds_up and context == 518 << 20):
                        missing.pop(scenario, None)
        return missing

    try:
        daemon.wait_for(lambda s: not unnamed(s), seconds=60)
    finally:
        for job in jobs:
            end_job(job)
        daemon.stop()


def an_idle_private_daemon_ends_itself(folder):
    daemon = Daemon(folder, "--exit-when-idle", "2")
    assert daemon.process.wait(timeout=30) == 0
    assert not (daemon.folder / "api.sock").exists()


def a_second_daemon_on_the_same_socket_is_refused(folder):
    daemon = Daemon(folder)
    other = subprocess.run(
        [BUILD / "bin/tidemarkd", "--private", "--agent-socket", daemon.folder / "agent.sock",
         "--api-socket", daemon.folder / "other.sock", "--http", "off", "--no-bpf"],
        stderr=subprocess.PIPE, text=True)
    assert other.returncode == 1, other
    assert "another daemon listens" in other.stderr, other.stderr
    daemon.stop()


def a_config_error_names_file_line_and_key(folder):
    config = pathlib.Path(folder) / "bad.yaml"
    config.write_text("job: x\nhttp:\n  listne: off\n")
    bad = subprocess.run([BUILD / "bin/tidemarkd", "--config", config, "--check-config"],
                         stderr=subprocess.PIPE, text=True)
    assert bad.returncode == 78, bad
    assert f"{config}:3: http.listne" in bad.stderr, bad.stderr


def main():
    with tempfile.TemporaryDirectory(prefix="tidemark-daemon-") as folder:
        os.chmod(folder, 0o700)
        globals()[sys.argv[1]](folder)


main()
