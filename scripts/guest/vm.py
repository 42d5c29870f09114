"""One guest: QEMU started, watched, asked by its monitor, and its verdict read."""
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import machine as machines

# What isa-debug-exit makes of 16 and 17; QEMU's own codes are small. 0: the guest reset itself,
# that is, it panicked.
PASSED, FAILED, RESET, LATE = 33, 35, 0, 124


@dataclasses.dataclass
class Outcome:
    """What became of a guest."""

    code: int
    lines: list
    console: str
    seconds: float
    images: dict
    trouble: list = dataclasses.field(default_factory=list)
    # When each line came, in seconds.
    times: list = dataclasses.field(default_factory=list)

    @property
    def passed(self):
        return self.code == PASSED and self.finished and not self.trouble

    @property
    def finished(self):
        """Whether the script got to its end, with nothing that failed."""
        return "done" in self.lines and not any(line.startswith("FAILED") for line in self.lines)

    def facts(self):
        for line in self.lines:
            word, _, rest = line.partition(" ")
            if word == "fact":
                yield rest.split(" ", 1)

    def why(self):
        known = {PASSED: "passed", FAILED: "failed", RESET: "the guest reset itself", LATE: "not done in time"}
        return known.get(self.code, f"QEMU ended with {self.code}")


class Monitor:
    """QEMU's monitor, of which we need commands without answers of interest."""

    def __init__(self, path):
        self.path, self.stream = path, None

    def command(self, name, **arguments):
        if self.stream is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(10)
            connection.connect(str(self.path))
            self.stream = connection.makefile("rw")
            self.stream.readline()
            self.command("qmp_capabilities")
        self.stream.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
        self.stream.flush()
        while True:
            answer = json.loads(self.stream.readline())
            if "error" in answer:
                raise RuntimeError(f"{name}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]


def qemu(machine, kernel, initramfs, directory, name, words):
    """The command line. `timeout`, so that no QEMU is left over whatever becomes of us; --foreground, or it would survive Ctrl-C."""
    line = f"console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable intel_iommu=on {machine.kernel} test={name} {words}"
    return [
        *("timeout", "--foreground", "--kill-after=5", str(machine.seconds)),
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "qemu64"),
        *("-smp", str(machine.cpus), "-m", str(machine.memory_mib)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-device", "intel-iommu,intremap=on", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"),
        *("-serial", f"file:{directory / 'console'}", "-serial", f"file:{directory / 'results'}"),
        *("-qmp", f"unix:{directory / 'monitor'},server=on,wait=off"),
        *("-kernel", str(kernel / "vmlinux"), "-initrd", str(initramfs), "-append", line),
        *machines.arguments(machine, directory),
        *machine.extra,
    ]


class Tail:
    """Whole lines of a file that grows."""

    def __init__(self, path):
        self.path, self.at, self.part = path, 0, b""

    def new_lines(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.at)
                data = file.read()
        except FileNotFoundError:
            return []
        self.at += len(data)
        *lines, self.part = (self.part + data).split(b"\n")
        return [line.decode(errors="replace").strip() for line in lines]


def run_once(script, kernel, initramfs, words):
    machine = machines.read(script)
    # A socket's path must be short.
    directory = pathlib.Path(tempfile.mkdtemp(prefix="meantime-guest-"))
    lines, trouble, times = [], [], []
    try:
        machines.make_images(machine, directory)
        monitor, results = Monitor(directory / "monitor"), Tail(directory / "results")
        start = time.monotonic()
        with open(directory / "qemu", "wb") as said:
            process = subprocess.Popen(
                qemu(machine, kernel, initramfs, directory, script.stem, words),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        try:
            while True:
                ended = process.poll() is not None
                for line in results.new_lines():
                    lines.append(line)
                    times.append(time.monotonic() - start)
                    if line.startswith("host "):
                        try:
                            obey(monitor, line.split()[1:])
                        except (OSError, RuntimeError, ValueError) as error:
                            trouble.append(f"'{line}': {error}")
                if ended:
                    break
                time.sleep(0.05)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        console = (directory / "qemu").read_text(errors="replace")
        if (directory / "console").exists():
            console += (directory / "console").read_text(errors="replace")
        outcome = Outcome(process.returncode, lines, console, time.monotonic() - start, {}, trouble, times)
        compare_images(directory, outcome)
        return outcome
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def obey(monitor, words):
    """What a guest may ask of the host."""
    if words[0] == "remove" and len(words) == 2:
        monitor.command("device_del", id=words[1])
    else:
        raise ValueError("the host cannot do that")


def compare_images(directory, outcome):
    """Whether what the guest read is what the files hold."""
    for line in outcome.lines:
        if line.startswith("image "):
            _, name, said = line.split()
            digest = hashlib.sha256((directory / f"{name}.img").read_bytes()).hexdigest()
            outcome.images[name] = digest
            if digest != said:
                outcome.trouble.append(f"{name}: the guest read data of sum {said}, the file has {digest}")


def run(script, kernel, initramfs, words=""):
    """`words` are the script's variables, as KEY=VALUE. Once more if the guest reset itself or ran out of time: a starved host does that to guests."""
    outcome = run_once(script, kernel, initramfs, words)
    if outcome.code in (RESET, LATE):
        print(f"guest: {script.stem}: {outcome.why()}: once more", flush=True)
        outcome = run_once(script, kernel, initramfs, words)
    return outcome
