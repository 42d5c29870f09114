"""What a guest's machine consists of: read from the head of a test's script, made into QEMU's arguments.

    # machine: cpus=2 seconds=120 kernel="nvme.poll_queues=1"
    # nvme: a ns=64M/512+32M/4096
    # nvme: b ns=64M/512 at=port error=read:2048 error=write:4096
    # nvme: c ns=1G/4096 medium=null

A controller has a name, which is its serial number and QEMU's id, and namespaces: size/format, numbered from 1. `at=port` puts it
into a PCIe slot of its own, from which it can be taken while the guest runs. `error=read:N` lets I/O to sector N (of 512 bytes) of
its first namespace fail. `medium=null` stores nothing and answers at once; with `latency_us=N` it is outside of QEMU, and sleeps so long.
"""
import dataclasses
import pathlib
import shlex

import slow


@dataclasses.dataclass
class Namespace:
    bytes: int
    block_bytes: int


@dataclasses.dataclass
class Controller:
    name: str
    namespaces: list
    port: bool = False
    null: bool = False
    latency_us: int = 0
    errors: list = dataclasses.field(default_factory=list)

    def image(self, nsid):
        return f"{self.name}{nsid}.img"


@dataclasses.dataclass
class Machine:
    controllers: list
    cpus: int = 1
    memory_mib: int = 512
    seconds: int = 120
    kernel: str = ""
    extra: list = dataclasses.field(default_factory=list)


def size(text):
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]]


def pairs(words):
    return (word.split("=", 1) for word in words)


def controller(words):
    made = Controller(name=words[0], namespaces=[])
    for key, value in pairs(words[1:]):
        if key == "ns":
            for part in value.split("+"):
                length, block = part.split("/")
                made.namespaces.append(Namespace(size(length), int(block)))
        elif key == "at" and value == "port":
            made.port = True
        elif key == "medium" and value == "null":
            made.null = True
        elif key == "latency_us":
            made.latency_us = int(value)
        elif key == "error":
            made.errors.append(value.split(":"))
        else:
            raise ValueError(f"unknown: {key}={value}")
    return made


def read(script):
    """The machine that a test's script asks for."""
    machine = Machine(controllers=[])
    for line in pathlib.Path(script).read_text().splitlines():
        if line.startswith("# nvme: "):
            machine.controllers.append(controller(shlex.split(line[8:])))
        elif line.startswith("# machine: "):
            for key, value in pairs(shlex.split(line[11:])):
                if key not in ("cpus", "seconds", "memory_mib", "kernel"):
                    raise ValueError(f"{script}: unknown: {key}")
                setattr(machine, key, value if key == "kernel" else int(value))
    return machine


def make_images(machine, directory):
    """Sparse files of zeroes, one a namespace; and what answers late."""
    for made in machine.controllers:
        for nsid, namespace in enumerate(made.namespaces, 1):
            if not made.null:
                with open(directory / made.image(nsid), "wb") as image:
                    image.truncate(namespace.bytes)
            elif made.latency_us:
                slow.serve(directory / f"{made.name}{nsid}", namespace.bytes, made.latency_us)


def blockdev(made, nsid, namespace, directory):
    """The drive behind a namespace."""
    drive = f"if=none,id={made.name}{nsid},"
    if made.latency_us:
        return drive + f"driver=nbd,server.type=unix,server.path={directory / f'{made.name}{nsid}'}"
    if made.null:
        return drive + f"driver=null-co,read-zeroes=off,size={namespace.bytes}"
    file = f"driver=file,filename={directory / made.image(nsid)}"
    if nsid > 1 or not made.errors:
        return drive + f"format=raw,cache=unsafe,file={directory / made.image(nsid)}"
    image = ",".join(f"file.image.{part}" for part in file.split(","))
    drive += f"cache=unsafe,driver=raw,file.driver=blkdebug,{image}"
    for n, (kind, sector) in enumerate(made.errors):
        rule = {"event": "none", "iotype": kind, "sector": sector, "errno": 5}
        drive += "".join(f",file.inject-error.{n}.{key}={value}" for key, value in rule.items())
    return drive


def arguments(machine, directory):
    """QEMU's arguments for the devices."""
    args = []
    for n, made in enumerate(machine.controllers, 1):
        bus = "pcie.0"
        if made.port:
            bus = f"port{n}"
            args += ["-device", f"pcie-root-port,id={bus},bus=pcie.0,chassis={n},slot={n}"]
        args += ["-device", f"nvme,id={made.name},serial={made.name},bus={bus},max_ioqpairs=8,msix_qsize=9"]
        for nsid, namespace in enumerate(made.namespaces, 1):
            block = f"logical_block_size={namespace.block_bytes},physical_block_size={namespace.block_bytes}"
            args += ["-drive", blockdev(made, nsid, namespace, directory)]
            args += ["-device", f"nvme-ns,bus={made.name},nsid={nsid},drive={made.name}{nsid},{block}"]
    return args
