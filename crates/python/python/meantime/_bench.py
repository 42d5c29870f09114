"""Measurements of `meantime bench` as a DataFrame."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import IO, TYPE_CHECKING, Any

from ._errors import Error, NotFound

if TYPE_CHECKING:
    import pandas

_PERCENTILES = {"p50_us": "50.000000", "p99_us": "99.000000", "p999_us": "99.900000"}


def results(source: str | os.PathLike[str] | IO[str] | dict[str, Any]) -> pandas.DataFrame:
    """The results of a run: a file of ``meantime bench --json``, or its content.

    One row for each job, device, policy and direction. Times are in µs: `mean_us` from submission
    on, percentiles of the completion latency as fio has them. fio's own JSON is read, too.
    """
    import pandas

    if isinstance(source, dict):
        report = source
    elif isinstance(source, (str, os.PathLike)):
        with open(source, encoding="utf-8") as file:
            report = json.load(file)
    else:
        report = json.load(source)
    rows = [row for job in report["jobs"] for row in _rows(job, report)]
    return pandas.DataFrame(rows)


def bench(
    *arguments: str, command: str | os.PathLike[str] = "meantime", **keys: object
) -> pandas.DataFrame:
    """Run ``meantime bench`` and return its results.

    `arguments` are job files and options; `keys` are fio's and ours, without the dashes::

        bench(device="mem:1G?model=optane", completion="poll,adaptive", rw="randread", runtime=2)

    `command` is the command, which has to be in PATH or named with a slash. A failure is an
    `Error` with what the command printed.
    """
    program = shutil.which(command)
    if program is None:
        raise NotFound(
            2, "no such command: build it (make build), and put it in PATH or name it", str(command)
        )
    line = [program, "bench", *arguments, "--json", "-"]
    for key, value in keys.items():
        option = "--" + key.replace("_", "-")
        line += [option] if value is True else [option, str(value)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Error(5, done.stderr.strip() or f"meantime bench ended with {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    return results(report)


def _rows(job: dict[str, Any], report: dict[str, Any]) -> list[dict[str, object]]:
    options = {**report.get("global options", {}), **job.get("job options", {})}
    rows = []
    for operation in ("read", "write", "trim"):
        side = job.get(operation, {})
        if not side.get("total_ios"):
            continue
        completion = side["clat_ns"]
        # fio leaves percentiles out if they are switched off.
        percentiles = completion.get("percentile", {})
        row: dict[str, object] = {
            "job": job["jobname"],
            "device": options.get("device", options.get("filename")),
            "completion": options.get("completion"),
            "operation": operation,
            "rw": options.get("rw"),
            "bs": options.get("bs"),
            "iodepth": int(options.get("iodepth", 1)),
            "ios": side["total_ios"],
            "iops": side["iops"],
            "bytes_per_s": side["bw_bytes"],
            "mean_us": side["lat_ns"]["mean"] / 1000,
        }
        for name, key in _PERCENTILES.items():
            row[name] = percentiles[key] / 1000 if key in percentiles else None
        row["max_us"] = side["lat_ns"]["max"] / 1000
        row["cpu_percent"] = job["usr_cpu"] + job["sys_cpu"]
        row["errors"] = job.get("errors", job["error"])
        row["medium"] = job.get("medium")
        rows.append(row)
    return rows
