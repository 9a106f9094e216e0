#!/usr/bin/env python3
"""A recording made by an older build opens in every command that reads one, with what it held.

Usage: old_recording_test.py; TIDEMARK_SOURCE and TIDEMARK_BUILD are the folders.
"""
import json
import os
import pathlib
import subprocess
import tempfile

SOURCE = pathlib.Path(os.environ["TIDEMARK_SOURCE"])
TIDEMARK = pathlib.Path(os.environ["TIDEMARK_BUILD"]) / "bin/tidemark"
# Two ranks, 40 steps; each step of each rank keeps 8 MiB.
OLD = SOURCE / "tests/fixtures/recordings/format1.tdm"
LINE = "simtrain_model.py"


def tidemark(*arguments):
    done = subprocess.run([TIDEMARK, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def main():
    for command, expected in {
            "ps": "exited", "where": "fw_live", "sites": LINE, "steps": "train", "leaks": LINE,
            "job": "2 of 2 ranks", "skew": "2 ranks", "report": "2 ranks, 40 steps",
            "history": "load"}.items():
        text = tidemark(command, "--from", OLD)
        assert expected in text, (command, text)
        json.loads(tidemark(command, "--json", "--from", OLD))
    assert "because it counts" in tidemark("where", "--reconcile", "--from", OLD)
    assert "40 steps" in tidemark("diff", OLD, OLD)
    held = json.loads(tidemark("sites", "--at", "last-step", "--limit", "0", "--json", "--from", OLD))
    kept = [site for site in held["sites"]
            if site["memory_class"] == "fw_live" and "cat" in json.dumps(site)]
    assert kept, held["sites"][:2]
    with tempfile.TemporaryDirectory() as folder:
        for form in ["pprof", "torch", "perfetto", "folded", "csv", "openmetrics"]:
            path = pathlib.Path(folder) / form
            tidemark("export", form, "--from", OLD, "-o", path)
            assert path.stat().st_size > 0, form


main()
