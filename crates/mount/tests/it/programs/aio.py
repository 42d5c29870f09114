"""Asynchronous direct writes, while another process reads the file by the kernel's cache.

The kernel gives up its copy before it sends a direct write, and not after it: what is read meanwhile
would stay. Prints how often something older than what was written was read.
"""

import ctypes
import mmap
import os
import struct

BYTES, AT_ONCE = 64 << 10, 16
SETUP, GETEVENTS, SUBMIT = 206, 208, 209
libc = ctypes.CDLL(None, use_errno=True)


def call(number, *args):
    done = libc.syscall(number, *args)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def main():
    with open("file", "wb") as file:
        file.write(bytes(BYTES * AT_ONCE))
    reader = os.fork()
    if reader == 0:
        cached = os.open("file", os.O_RDONLY)
        while os.pread(cached, BYTES * AT_ONCE, 0):
            pass
    direct, cached = os.open("file", os.O_WRONLY | os.O_DIRECT), os.open("file", os.O_RDONLY)
    context = ctypes.c_ulong(0)
    call(SETUP, AT_ONCE, ctypes.byref(context))
    buffer = mmap.mmap(-1, BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    events = ctypes.create_string_buffer(32 * AT_ONCE)
    stale = 0
    for n in range(1, 120):
        buffer[:] = bytes([n]) * BYTES
        # (1 is IOCB_CMD_PWRITE.)
        all = [ctypes.create_string_buffer(struct.pack(
            "QIIHhIQQqQII", 0, 0, 0, 1, 0, direct, address, BYTES, part * BYTES, 0, 0, 0), 64)
            for part in range(AT_ONCE)]
        list_of = (ctypes.c_void_p * AT_ONCE)(*map(ctypes.addressof, all))
        assert call(SUBMIT, context, AT_ONCE, list_of) == AT_ONCE
        assert call(GETEVENTS, context, AT_ONCE, AT_ONCE, events, None) == AT_ONCE
        for done in range(AT_ONCE):
            assert struct.unpack_from("QQqq", events, 32 * done)[2] == BYTES
        stale += os.pread(cached, BYTES * AT_ONCE, 0) != bytes([n]) * (BYTES * AT_ONCE)
    os.kill(reader, 9)
    print(stale)


main()
