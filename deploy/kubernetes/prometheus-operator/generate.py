#!/usr/bin/env python3
"""Writes rules.yaml, the rules of deploy/prometheus/rules as PrometheusRules; --check compares."""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent


def rendered():
    text = "# Written by generate.py from deploy/prometheus/rules.\n"
    for path in sorted((HERE / "../../prometheus/rules").glob("*.yml")):
        text += ("---\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n"
                 f"  name: {path.stem}\nspec:\n")
        text += "".join(f"  {line}\n" if line else "\n" for line in path.read_text().splitlines())
    return text


target = HERE / "rules.yaml"
if sys.argv[1:] == ["--check"]:
    if target.read_text() != rendered():
        sys.exit(f"{target} is stale: run {__file__}")
else:
    target.write_text(rendered())
