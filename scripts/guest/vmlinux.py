#!/usr/bin/env python3
"""vmlinux.py BZIMAGE ELF: takes the kernel proper out of its self-unpacking image (Debian packs with xz, since trixie with zstd)."""
import lzma
import struct
import subprocess
import sys

bzimage, elf = sys.argv[1:]
image = open(bzimage, "rb").read()
# Linux's boot protocol (Documentation/arch/x86/boot.rst): setup_sects, then payload_offset and
# payload_length since version 2.08.
assert image[0x202:0x206] == b"HdrS", f"{bzimage} is no Linux kernel"
setup = (image[0x1F1] or 4) + 1
offset, length = struct.unpack_from("<II", image, 0x248)
payload = image[setup * 512 + offset :][:length]
# Four bytes with the unpacked length follow the stream.
if payload.startswith(b"\xfd7zXZ\0"):
    kernel = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
elif payload.startswith(b"\x28\xb5\x2f\xfd"):
    # Python has no zstd of its own before 3.14.
    kernel = subprocess.run(["zstd", "-dc"], input=payload[:-4], stdout=subprocess.PIPE, check=True).stdout
else:
    sys.exit(f"vmlinux.py: {bzimage} is packed neither with xz nor with zstd")
assert kernel.startswith(b"\x7fELF"), "the payload is no ELF file"
with open(elf, "wb") as out:
    out.write(kernel)
