#!/usr/bin/env python3
"""check.py [REVISION]: which quick tests a change needs, as a filter of cargo-nextest's.

Changed is what differs from REVISION; without one, from what is pushed. A crate's tests are needed if it or a crate that it is built
on was changed, and those of the documents always. The testkit's own dependencies do not count, or every test would be needed for
every change.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
EVERYTHING = ("Cargo.toml", "Cargo.lock", ".config/nextest.toml")


def said(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def base():
    if sys.argv[1:]:
        return sys.argv[1]
    pushed = subprocess.run(("git", "merge-base", "HEAD", "@{upstream}"), cwd=ROOT, capture_output=True, text=True)
    return pushed.stdout.strip() or "HEAD"


def packages():
    """The workspace's packages: directory and name; and of each name the crates that it is built on."""
    found = json.loads(said("cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"))["packages"]
    directories = {pathlib.Path(one["manifest_path"]).parent.relative_to(ROOT): one["name"] for one in found}
    built_on = {one["name"]: {dep["name"] for dep in one["dependencies"] if dep["kind"] != "dev"} for one in found}
    built_on["meantime-testkit"] = set()
    return directories, built_on


def main():
    files = said("git", "diff", "--name-only", base()) + said("git", "ls-files", "--others", "--exclude-standard")
    directories, built_on = packages()
    needed = {"meantime"}
    for file in map(pathlib.Path, files.splitlines()):
        if str(file) in EVERYTHING or file.parts[:2] == ("crates", "testkit"):
            return "all()"
        needed |= {directories[parent] for parent in file.parents if parent in directories}
    while more := {name for name, on in built_on.items() if on & needed} - needed - {"meantime-testkit"}:
        needed |= more
    return " | ".join(f"package(={name})" for name in sorted(needed))


if __name__ == "__main__":
    print(main())
