#!/usr/bin/env python3
"""vmlinux.py BZIMAGE ELF: takes the kernel proper out of its self-unpacking image (Debian packs with xz)."""
import lzma
import struct
import sys

bzimage, elf = sys.argv[1:]
image = open(bzimage, "rb").read()
# Linux's boot protocol (Documentation/arch/x86/boot.rst): setup_sects, then payload_offset and
# payload_length since version 2.08.
assert image[0x202:0x206] == b"HdrS", f"{bzimage} is no Linux kernel"
setup = (image[0x1F1] or 4) + 1
offset, length = struct.unpack_from("<II", image, 0x248)
payload = image[setup * 512 + offset :][:length]
if not payload.startswith(b"\xfd7zXZ\0"):
    sys.exit(f"vmlinux.py: {bzimage} is not packed with xz")
# Four bytes with the unpacked length follow the stream.
kernel = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
assert kernel.startswith(b"\x7fELF"), "the payload is no ELF file"
with open(elf, "wb") as out:
    out.write(kernel)
