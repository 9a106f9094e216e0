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
JOB = f"daemon-test-{os.getpid()}"


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

    def wait_for(self, what, seconds=60):
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


def start_python_job(folder, *arguments):
    """The same job with Python frames, which have their names at once."""
    script = pathlib.Path(__file__).resolve().parent.parent / "tests/sim/simtrain.py"
    environment = dict(os.environ, TIDEMARK_AGENT_SOCKET=str(pathlib.Path(folder) / "agent.sock"),
                       CUDA_INJECTION64_PATH=str(BUILD / "lib/libtidemark_cupti.so"),
                       LD_LIBRARY_PATH=str(BUILD / "sim"))
    return subprocess.Popen(
        [sys.executable, script, "--launcher", "torchrun", "--sim", BUILD / "sim", *arguments],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True)


def end_job(job):
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    job.wait()


def ranks(snapshot, **wanted):
    """Of the test's own jobs: a daemon sees every rank on the machine."""
    return [p for p in snapshot["processes"]
            if p["identity"]["rank"] >= 0 and p["identity"]["training_job"].startswith(JOB)
            and all(p.get(k) == v for k, v in wanted.items())]


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
                      "--scenario", scenario, TIDEMARK_JOB=f"{JOB}-{scenario}") for scenario in named]

    def unnamed(snapshot):
        missing = dict(named)
        for process in ranks(snapshot):
            scenario = process["identity"]["training_job"].removeprefix(JOB + "-")
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


def postmortem(daemon, *arguments):
    answer = subprocess.run([BUILD / "bin/tidemark", "postmortem", "--json", "--socket",
                             daemon.folder / "api.sock", *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return json.loads(answer.stdout) if answer.returncode == 0 else {"postmortems": []}


def wait_for_postmortem(daemon, what, seconds=60):
    """The first post-mortem in the list that fits, whole."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for summary in postmortem(daemon)["postmortems"]:
            if summary["process"]["training_job"] == JOB and what(summary):
                return postmortem(daemon, summary["id"])
        time.sleep(0.1)
    raise AssertionError("no such post-mortem: " + (daemon.folder / "log").read_text()[-2000:])


def blamed(grower):
    site = grower["site"]
    return site["frames"][site.get("blamed_frame", 0)]["function"]


def a_killed_rank_leaves_a_post_mortem_that_names_the_grower(folder):
    daemon = Daemon(folder)
    job = start_python_job(folder, "--ranks", "2", "--steps", "100000", "--step-ms", "20",
                           "--scenario", "one-rank", "--leak-rank", "1", "--leak-bytes", "8MiB")
    try:
        def past(step):
            return daemon.wait_for(
                lambda s: len(ranks(s, observed=True)) == 2 and all(
                    int(p.get("current_step", 0)) > step for p in ranks(s)) and ranks(s))
        alive = past(40)
        # Seen twice: its course has a beginning and an end.
        alive = past(20 + max(int(p["current_step"]) for p in alive))
        victim = [p["pid"] for p in alive if p["identity"]["rank"] == 1][0]
        os.kill(victim, signal.SIGKILL)
        killed_at = time.time()
        found = wait_for_postmortem(daemon, lambda m: m["process"]["pid"] == victim)
        print(f"written {found['summary']['unix_ns'] / 1e9 - killed_at:.3f} s after the death")
        assert found["summary"]["cause"] == "signal", found["summary"]
        assert found["summary"]["how"] == "killed by SIGKILL", found["summary"]
        biggest = found["growers"][0]
        assert biggest["process"]["pid"] == victim, biggest["process"]
        assert biggest["memory_class"] == "fw_live", biggest
        assert blamed(biggest) == "Trainer.log_loss", biggest["site"]
        process = found["process"]
        assert process["waterfalls"] and process["sites"] and process["phases"], process.keys()
        assert int(process["steps"][-1]["step"]) >= 40
        course = [s for s in found["series"] if s["memory_class"] == "fw_live"][0]["mean_bytes"]
        assert int(course[-1]) > int(course[0]), course
    finally:
        end_job(job)
        daemon.stop()


def a_post_mortem_survives_a_daemon_that_is_killed_right_after(folder):
    daemon = Daemon(folder)
    job = start_python_job(folder, "--ranks", "1", "--steps", "100000", "--step-ms", "20",
                           "--scenario", "one-rank", "--leak-rank", "0", "--leak-bytes", "8MiB")
    try:
        alive = daemon.wait_for(
            lambda s: [p for p in ranks(s, observed=True) if int(p.get("current_step", 0)) > 40])
        victim = alive[0]["pid"]
        os.kill(victim, signal.SIGKILL)
        end = time.monotonic() + 60
        while not list(daemon.folder.glob(f"state/regions/{victim}-*.region")):
            assert time.monotonic() < end, "the region was not kept"
            time.sleep(0.01)
        daemon.stop(signal.SIGKILL)
        # The worst case: the daemon did not come as far as the post-mortem itself.
        for written in daemon.folder.glob("state/postmortem/*"):
            written.unlink()
        daemon.start()
        found = wait_for_postmortem(daemon, lambda m: m["process"]["pid"] == victim)
        biggest = found["growers"][0]
        assert biggest["process"]["rank"] == 0, biggest["process"]
        assert blamed(biggest) == "Trainer.log_loss", biggest["site"]
        # What is written stays, and is not written anew.
        daemon.stop(signal.SIGKILL)
        daemon.start()
        again = wait_for_postmortem(daemon, lambda m: m["process"]["pid"] == victim)
        assert again == found
        assert len(postmortem(daemon)["postmortems"]) == 1
    finally:
        end_job(job)
        daemon.stop()


def a_device_out_of_memory_names_the_call_and_the_grower(folder):
    os.environ["TIDEMARK_SIM_DEVICE_BYTES"] = "4GiB"
    daemon = Daemon(folder)
    job = start_python_job(folder, "--ranks", "2", "--steps", "100000", "--step-ms", "20",
                           "--scenario", "oom", "--leak-bytes", "48MiB")
    try:
        found = wait_for_postmortem(
            daemon, lambda m: m["cause"] == "device_out_of_memory" and "exited" in m["how"])
        assert found["summary"]["process"]["rank"] == 0, found["summary"]
        assert found["summary"]["how"].startswith("exited with status"), found["summary"]
        call = found["failing_call"]
        assert int(call["bytes"]) > 0 and (int(call["code"]) == 2 or
                                           call["type"] == "out_of_memory"), call
        biggest = found["growers"][0]
        assert biggest["process"]["rank"] == 0, biggest["process"]
        assert blamed(biggest) == "Trainer.log_loss", biggest["site"]
        assert int(biggest["live_bytes"]) > 2 << 30, biggest["live_bytes"]
    finally:
        end_job(job)
        daemon.stop()


def a_host_out_of_memory_kill_is_told_from_other_kills(folder):
    group = pathlib.Path(f"/sys/fs/cgroup/memory/tidemark-test-{os.getpid()}")
    group.mkdir()
    daemon = Daemon(folder)
    job = None
    try:
        (group / "memory.limit_in_bytes").write_text(str(256 << 20))
        # Without swap the limit is a limit; a kernel without swap accounting lacks the file.
        if (group / "memory.memsw.limit_in_bytes").exists():
            (group / "memory.memsw.limit_in_bytes").write_text(str(256 << 20))
        environment = dict(os.environ,
                           TIDEMARK_AGENT_SOCKET=str(pathlib.Path(folder) / "agent.sock"),
                           CUDA_INJECTION64_PATH=str(BUILD / "lib/libtidemark_cupti.so"))
        job = subprocess.Popen(
            ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh",
             BUILD / "bin/simtrain", "--launcher", "torchrun", "--ranks", "1", "--steps", "100000",
             "--step-ms", "200", "--scenario", "heap", "--leak-bytes", "16MiB"],
            env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
        found = wait_for_postmortem(daemon, lambda m: m["cause"] == "oom_killer")
        assert found["summary"]["how"] == "killed by the OOM killer", found["summary"]
        # What grew outside its control group is of the node, and may be another test's.
        biggest = [g for g in found["growers"] if g["process"]["training_job"] == JOB][0]
        assert biggest["memory_class"] == "anon", biggest
        assert biggest["process"]["rank"] == 0, biggest["process"]
        assert int(biggest["live_bytes"]) > 64 << 20, biggest["live_bytes"]
    finally:
        if job is not None:
            end_job(job)
        daemon.stop()
        while True:
            try:
                group.rmdir()
                break
            except OSError:  # until the last process has left it
                time.sleep(0.1)


def a_disk_that_cannot_be_written_costs_the_post_mortem_only(folder):
    state = pathlib.Path(folder) / "state"
    state.mkdir()
    (state / "postmortem").write_text("in the way")
    daemon = Daemon(folder)
    job = start_job(folder, "--ranks", "1", "--steps", "100000", "--step-ms", "20")
    try:
        alive = daemon.wait_for(lambda s: ranks(s, observed=True))
        os.kill(alive[0]["pid"], signal.SIGKILL)
        told = daemon.wait_for(
            lambda s: [f for f in s["sources"]
                       if f["name"] == "postmortem" and f["state"] == "unavailable"] and s)
        assert [x for x in told["losses"] if x["cause"] == "postmortems_not_written"], told["losses"]
        assert [p for p in ranks(told) if p["liveness"] == "killed"]
        assert postmortem(daemon)["postmortems"] == []
    finally:
        end_job(job)
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
        # Devices of its own: what other tests allocate beside it must not run this one out of memory.
        os.environ["TIDEMARK_SIM_STATE"] = os.path.join(folder, "sim")
        os.environ["TIDEMARK_JOB"] = JOB
        globals()[sys.argv[1]](folder)


main()
