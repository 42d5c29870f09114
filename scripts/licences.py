#!/usr/bin/env python3
"""licences.py: the licences of the crates that are in what is installed, with their texts.

Asks cargo (or $CARGO) for the crates; the texts are in cargo's sources.
"""

import json
import os
import pathlib
import shlex
import subprocess

ROOTS = {"meantime-cli", "meantime-capi", "meantime-intercept", "meantime-fio-engine"}
NAMES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "COPYRIGHT*")

command = [*shlex.split(os.environ.get("CARGO", "cargo")), "metadata", "--format-version=1", "--locked"]
metadata = json.loads(subprocess.check_output([*command, "--filter-platform=x86_64-unknown-linux-gnu"]))
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}

found, left = set(), [id for id, package in packages.items() if package["name"] in ROOTS]
while left:
    id = left.pop()
    if id in found:
        continue
    found.add(id)
    # What is used to build or to test is not in it.
    left += [dep["pkg"] for dep in nodes[id]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]

# Several crates have the same text.
texts = {}
for package in sorted((packages[id] for id in found), key=lambda package: (package["name"], package["version"])):
    if package["source"] is None:
        continue
    title = f"{package['name']} {package['version']} ({package['license']})"
    where = pathlib.Path(package["manifest_path"]).parent
    files = sorted({path for name in NAMES for path in where.glob(name) if path.is_file()})
    for text in [path.read_text(errors="replace").strip() for path in files] or ["(no text)"]:
        texts.setdefault(text, []).append(title)
for text, titles in texts.items():
    print("\n".join(titles), "", text, "", "-" * 80, "", sep="\n")
