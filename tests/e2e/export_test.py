#!/usr/bin/env python3
"""What a recording exports opens in the tools people have: each file is read by somebody else's reader.

Usage: export_test.py; TIDEMARK_SOURCE and TIDEMARK_BUILD are the folders.
"""
import csv
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["TIDEMARK_SOURCE"])
BUILD = pathlib.Path(os.environ["TIDEMARK_BUILD"])
LEAKED = 2 * 60 * (8 << 20)  # both ranks keep 8 MiB in each of 60 steps
LEAKING_LINE = "simtrain_model.py"


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr.decode()[-2000:]}")
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "run").mkdir(mode=0o700)
        environment = dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "sim"),
                           TIDEMARK_SIM_STATE=str(folder / "sim"), XDG_RUNTIME_DIR=str(folder / "run"))
        recording = folder / "run.tdm"
        run(BUILD / "bin/tidemark", "run", "-o", recording, "--", sys.executable,
            SOURCE / "tests/sim/simtrain.py", "--ranks", "2", "--steps", "60", "--step-ms", "30",
            "--scenario", "zero-init-cat", "--zero-init", "on", env=environment)

        def export(form, *arguments):
            path = folder / form
            run(BUILD / "bin/tidemark", "export", form, "--from", recording, "-o", path, *arguments)
            return path

        # pprof: a gzipped protobuf message.
        profile = run("gunzip", "-c", input=export("pprof").read_bytes())
        assert LEAKING_LINE in run("protoc", "--decode_raw", input=profile).decode()
        run("protoc", "--decode_raw", input=export("perfetto").read_bytes())

        # PyTorch's snapshot: blocks tile their segment.
        with open(export("torch"), "rb") as file:
            snapshot = pickle.load(file)
        assert snapshot["segments"]
        for segment in snapshot["segments"]:
            assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"], segment

        rows = list(csv.DictReader(open(export("csv", "--what", "peak"))))
        leaked = sum(int(row["bytes"]) for row in rows
                     if row["class"] == "fw_live" and "cat" in str(row))
        assert leaked >= LEAKED, leaked

        for line in export("folded").read_text().splitlines():
            stack, _, size = line.rpartition(" ")
            assert stack and int(size) >= 0, line

        # Prometheus takes the past as blocks.
        run("promtool", "tsdb", "create-blocks-from", "openmetrics", export("openmetrics"),
            folder / "blocks")
        assert list((folder / "blocks").iterdir())


main()
