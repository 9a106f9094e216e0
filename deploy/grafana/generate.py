#!/usr/bin/env python3
"""Writes dashboards/*.json; with --check, says whether they are as it would write them.

Panels are one line each here, so that units, legends and links are the same everywhere.
"""
import json
import pathlib
import sys

OUT = pathlib.Path(__file__).parent / "dashboards"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
JOB_LINK = {"title": "Job", "url": "/d/tidemark-job?var-job=${__field.labels.training_job}"}
NODE_LINK = {"title": "Node", "url": "/d/tidemark-node?var-node=${__field.labels.instance}"}


def panel(title, expr, legend="", unit="short", kind="timeseries", width=12, height=8, text="",
          links=()):
    custom = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if kind == "stack" else {}
    out = {
        "title": title,
        "description": text,
        "type": "timeseries" if kind == "stack" else kind,
        "datasource": DATASOURCE,
        "targets": [{"refId": "A", "expr": expr, "legendFormat": legend or "__auto",
                     "instant": kind in ("table", "stat"),
                     "format": "table" if kind == "table" else "time_series"}],
        "fieldConfig": {"defaults": {"unit": unit, "custom": custom, "links": list(links)},
                        "overrides": []},
        "options": {},
        "size": (width, height),
    }
    if kind == "timeseries":
        out["fieldConfig"]["defaults"]["custom"] = {"showPoints": "never"}
    return out


def variable(name, query, label):
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1, "includeAll": False}


def dashboard(uid, title, text, variables, panels):
    x = y = row = 0
    placed = []
    for number, p in enumerate(panels, 1):
        width, height = p.pop("size")
        if x + width > 24:
            x, y, row = 0, y + row, 0
        placed.append({"id": number, **p, "gridPos": {"x": x, "y": y, "w": width, "h": height}})
        x, row = x + width, max(row, height)
    source = {"name": "datasource", "label": "Data source", "type": "datasource",
              "query": "prometheus"}
    return {"uid": uid, "title": title, "description": text, "tags": ["tidemark"],
            "schemaVersion": 38, "version": 1, "editable": False, "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"}, "timezone": "browser",
            "templating": {"list": [source] + variables},
            "links": [{"type": "dashboards", "tags": ["tidemark"], "title": "Tidemark",
                       "asDropdown": True, "keepTime": True}],
            "panels": placed}


CLUSTER = dashboard(
    "tidemark-cluster", "Tidemark: cluster", "Which jobs leak, and what is not observed.", [],
    [
        panel("Jobs", "count(count by (training_job) (tidemark_rank_info{rank!=\"\"}))", kind="stat",
              width=4, height=4),
        panel("Ranks", "sum(training_job:tidemark_ranks:count)", kind="stat", width=4, height=4),
        panel("Leaking jobs",
              "count(group by (training_job) (training_job_class:tidemark_leaking_ranks:count))"
              " or vector(0)", kind="stat", width=4, height=4),
        panel("GPU processes not observed",
              "sum(tidemark_process_coverage{state=\"unobserved\"}) or vector(0)", kind="stat",
              width=4, height=4),
        panel("Nodes that report", "count(tidemark_node_info)", kind="stat", width=4, height=4),
        panel("Device memory in use",
              "sum(tidemark_device_used_bytes) / sum(tidemark_device_capacity_bytes)",
              unit="percentunit", kind="stat", width=4, height=4),
        panel("Leaks", "training_job_rank_class_site:tidemark_leak:confirmed", kind="table",
              text="One row a rank, class and site.", links=[JOB_LINK]),
        panel("GPU processes not observed, and why",
              "sum by (instance, reason) (tidemark_process_coverage{state=\"unobserved\"})",
              kind="table", text="docs/operations.md says what to do about each reason.",
              links=[NODE_LINK]),
        panel("Device memory by job",
              "sum by (training_job) (tidemark_process_device_bytes{rank!=\"\"})",
              "{{training_job}}", "bytes", "stack", links=[JOB_LINK]),
        panel("Skew: largest rank / median rank", "training_job_class:tidemark_memory_skew:ratio",
              "{{training_job}} {{class}}", text="1 = all ranks hold the same.", links=[JOB_LINK]),
        panel("Out of memory ahead",
              "min by (training_job, class) (tidemark_out_of_memory_seconds)",
              "{{training_job}} {{class}}", "s", text="At the present slope.", links=[JOB_LINK]),
        panel("Ranks that no node reports",
              "sum by (training_job) (training_job_attempt:tidemark_ranks_missing:count)",
              "{{training_job}}", text="World size minus the ranks seen, within one attempt."),
    ])

JOB = dashboard(
    "tidemark-job", "Tidemark: job", "Who grows, by how much, and where it is allocated.",
    [variable("job", "label_values(tidemark_rank_info{rank!=\"\"}, training_job)", "Job"),
     variable("class", "label_values(tidemark_memory_bytes{training_job=\"$job\"}, class)", "Class")],
    [
        panel("Verdicts",
              "max by (rank, device, class, state, cause, site, leak)"
              " (tidemark_verdict{training_job=\"$job\"})", kind="table", width=24),
        panel("Memory by class, all ranks",
              "training_job_class:tidemark_memory_bytes:sum{training_job=\"$job\"}", "{{class}}",
              "bytes", "stack"),
        panel("$class by rank",
              "training_job_rank_class:tidemark_memory_bytes:sum{training_job=\"$job\",class=\"$class\"}",
              "rank {{rank}}", "bytes"),
        panel("Step floor by rank",
              "training_job_rank:tidemark_step_floor_bytes:sum{training_job=\"$job\"}",
              "rank {{rank}}", "bytes",
              text="Smallest live bytes within a step: what a leak raises and a peak does not."),
        panel("Growth per step",
              "max by (rank, class) (tidemark_growth_bytes_per_step{training_job=\"$job\"})",
              "rank {{rank}} {{class}}", "bytes"),
        panel("Rank heat map of $class",
              "training_job_rank_class:tidemark_memory_bytes:sum{training_job=\"$job\",class=\"$class\"}",
              "{{rank}}", "bytes", "heatmap"),
        panel("Skew", "training_job_class:tidemark_memory_skew:ratio{training_job=\"$job\"}",
              "{{class}}", text="Largest rank / median rank."),
        panel("Largest sites",
              "topk(20, max by (where, class, site) (tidemark_site_live_bytes{training_job=\"$job\"}))",
              unit="bytes", kind="table", text="Allocated here; who holds it: tidemark sites --holders."),
        panel("Same bytes on every rank",
              "training_job_site:tidemark_site_live_bytes:same_on_every_rank_bytes{training_job=\"$job\"}",
              unit="bytes", kind="table",
              text="Replicated or a shard of equal size: one run cannot tell which."),
        panel("Headroom of devices",
              "min by (instance, device) (tidemark_device_capacity_bytes - tidemark_device_used_bytes)"
              " and on (instance, device) tidemark_process_device_bytes{training_job=\"$job\"}",
              "{{instance}} {{device}}", "bytes", links=[NODE_LINK]),
        panel("Unattributed",
              "sum by (rank) (tidemark_memory_bytes{training_job=\"$job\",class=\"unattributed\"})",
              "rank {{rank}}", "bytes", text="May be negative: nothing is clamped."),
        panel("Releasable", "max by (rank, class) (tidemark_releasable_bytes{training_job=\"$job\"})",
              "rank {{rank}} {{class}}", "bytes"),
        panel("Memory cgroup", "max by (rank, kind) (tidemark_cgroup_memory_bytes{training_job=\"$job\"})",
              "rank {{rank}} {{kind}}", "bytes"),
    ])

NODE = dashboard(
    "tidemark-node", "Tidemark: node", "Where the memory of one node is.",
    [variable("node", "label_values(tidemark_node_info, instance)", "Node")],
    [
        panel("Page of the node", "tidemark_node_info{instance=\"$node\"}", "{{node}}", kind="stat",
              width=6, height=4,
              links=[{"title": "Its own page", "url": "http://${__field.labels.instance}/"}]),
        panel("Devices", "tidemark_device_info{instance=\"$node\"}", kind="table", width=18, height=4),
        panel("Device memory in use", "tidemark_device_used_bytes{instance=\"$node\"}",
              "device {{device}}", "bytes"),
        panel("Where device memory is",
              "sum by (class) (tidemark_memory_bytes{instance=\"$node\",device!=\"\"})", "{{class}}",
              "bytes", "stack"),
        panel("Where host memory is",
              "sum by (class) (tidemark_memory_bytes{instance=\"$node\",device=\"\"})", "{{class}}",
              "bytes", "stack"),
        panel("Host memory of the node", "tidemark_node_memory_bytes{instance=\"$node\"}", "{{kind}}",
              "bytes"),
        panel("Ranks here", "max by (training_job, rank) (tidemark_rank_info{instance=\"$node\"})",
              kind="table", links=[JOB_LINK]),
        panel("What observes",
              "sum by (witness, state, reason) (tidemark_process_coverage{instance=\"$node\"})",
              kind="table"),
    ])

OWN = dashboard(
    "tidemark-self", "Tidemark: itself", "What Tidemark costs, and what it does not see.", [],
    [
        panel("Daemons up", "sum(up{job=~\".*tidemark.*\"})", kind="stat", width=6, height=4),
        panel("Versions", "count by (version) (tidemark_build_info)", kind="table", width=6, height=4),
        panel("Series left out", "sum(tidemark_series_omitted)", kind="stat", width=6, height=4),
        panel("Oldest snapshot", "max(time() - tidemark_snapshot_timestamp_seconds)", unit="s",
              kind="stat", width=6, height=4),
        panel("Memory of daemons", "tidemark_daemon_resident_memory_bytes", "{{instance}}", "bytes"),
        panel("Processor of daemons", "rate(tidemark_daemon_cpu_seconds_total[5m])", "{{instance}}",
              "percentunit"),
        panel("Tick", "tidemark_tick_duration_seconds", "{{instance}}", "s"),
        panel("Losses of nodes", "sum by (cause) (rate(tidemark_losses_total[5m]))", "{{cause}}"),
        panel("Losses in processes", "sum by (cause) (tidemark_process_losses)", "{{cause}}"),
        panel("Refused requests", "sum by (cause) (rate(tidemark_refused_requests_total[5m]))",
              "{{cause}}"),
        panel("Sources that are not on",
              "count by (feature, state, reason) (tidemark_feature_state{state!=\"on\"})",
              kind="table", width=24),
    ])


def main():
    check = "--check" in sys.argv[1:]
    stale = []
    for board in (CLUSTER, JOB, NODE, OWN):
        path = OUT / (board["uid"] + ".json")
        text = json.dumps(board, indent=1) + "\n"
        if check and (not path.exists() or path.read_text() != text):
            stale.append(path.name)
        elif not check:
            path.write_text(text)
    if stale:
        sys.exit("run deploy/grafana/generate.py: " + ", ".join(stale))


if __name__ == "__main__":
    main()
