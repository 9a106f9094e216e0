#!/usr/bin/env python3
"""What leaves a daemon by default holds no command line and nothing of the environment.

A job is started with a secret in an argument, in variables and in what looks like a host's name;
none of it is in the metrics, the JSON, the stream or any export. TIDEMARK_BUILD is the build folder.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zlib

BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
SOURCE = pathlib.Path(os.environ["TIDEMARK_SOURCE"])
ARGUMENT = "argument-t0psecret"
VARIABLES = {"MY_PASSWORD": "variable-t0psecret", "HOSTNAME": "host-t0psecret.internal",
             "AWS_SECRET_ACCESS_KEY": "key-t0psecret"}
SECRETS = [ARGUMENT, *VARIABLES.values()]
PATIENCE = 60


def until(what, found):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            value = found()
            if value:
                return value
        except urllib.error.HTTPError as early:  # before the first snapshot
            assert early.code == 503, early
        time.sleep(0.2)
    raise AssertionError("did not come about: " + what)


def unpacked(data):
    """Also what is inside of gzip."""
    return data + zlib.decompress(data, 31) if data[:2] == b"\x1f\x8b" else data


def main(folder):
    folder = pathlib.Path(folder)
    environment = dict(os.environ, **VARIABLES, LD_LIBRARY_PATH=str(BUILD / "sim"),
                       TIDEMARK_SIM_STATE=str(folder / "sim"),
                       TIDEMARK_AGENT_SOCKET=str(folder / "agent.sock"), TIDEMARK_JOB="private")
    ready, theirs = os.pipe()
    with open(folder / "log", "wb") as log:
        daemon = subprocess.Popen(
            [BUILD / "bin/tidemarkd", "--private", "--exit-when-idle", "0", "--agent-socket",
             folder / "agent.sock", "--api-socket", folder / "api.sock", "--http", "127.0.0.1:0",
             "--ready-fd", str(theirs)], pass_fds=[theirs], env=environment, stderr=log)
    os.close(theirs)
    job = None
    try:
        with os.fdopen(ready) as pipe:
            base = pipe.readline().strip().rsplit("/", 1)[0]
        job = subprocess.Popen(
            [sys.executable, SOURCE / "tests/sim/simtrain.py", "--sim", BUILD / "sim", "--ranks", "2",
             "--steps", "1000000", "--step-ms", "50", "--scenario", "one-rank", "--leak-rank", "1",
             "--truth", folder / ARGUMENT],
            env=dict(environment, CUDA_INJECTION64_PATH=str(BUILD / "lib/libtidemark_cupti.so")),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

        def get(path):
            with urllib.request.urlopen(f"{base}/{path}", timeout=PATIENCE) as answer:
                return answer.read()

        def leaking():
            processes = [p for p in json.loads(get("api/v1/snapshot"))["processes"]
                         if p["identity"]["training_job"] == "private"]
            return any(v["state"] == "confirmed" for p in processes for v in p["verdicts"]) and processes

        ranks = until("a confirmed leak", leaking)
        pid = ranks[0]["pid"]
        known = b"".join(pathlib.Path(f"/proc/{who}/{file}").read_bytes()
                         for who in (pid, job.pid) for file in ("cmdline", "environ"))
        for secret in SECRETS:
            assert secret.encode() in known, f"the job never had {secret}: this test shows nothing"

        answers = {path: get(path) for path in (
            "metrics", "healthz", "api/v1/snapshot", "api/v1/query_range?include_marks=true",
            "api/v1/diff?before.moment.name=load&after.moment.name=now",
            *(f"api/v1/export?format={name}"
              for name in ("pprof", "torch", "folded", "csv", "perfetto", "openmetrics")))}
        with urllib.request.urlopen(f"{base}/api/v1/stream", timeout=PATIENCE) as stream:
            while not answers.get("stream", b"").startswith(b"data: "):
                answers["stream"] = stream.readline()
        for path, answer in answers.items():
            for secret in SECRETS:
                assert secret.encode() not in unpacked(answer), f"{path} tells {secret}"
        for hidden in (b"/simtrain.py", b"--scenario", str(pid).encode() + b'"'):
            assert hidden not in answers["metrics"], f"/metrics tells {hidden}"

        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in ("", "metrics", "api/v1/snapshot", "api/v1/export?format=csv"):
                try:
                    urllib.request.urlopen(
                        urllib.request.Request(f"{base}/{path}", data=b"x", method=method), timeout=PATIENCE)
                    raise AssertionError(f"{method} /{path} was taken")
                except urllib.error.HTTPError as refused:
                    assert refused.code == 405, (method, path, refused.code)
        print(f"{len(answers)} answers, {sum(map(len, answers.values()))} bytes, none tells")
    finally:
        if job:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        daemon.kill()
        daemon.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
