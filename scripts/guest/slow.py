"""A medium that takes its time: an NBD server for QEMU, whose own delays (null-co's) are multiples of a millisecond, and depend on how the
guest waits. Blocks are zeroes; what is written is forgotten. One request at a time.
"""
import socket
import struct
import threading
import time

# Of the NBD protocol: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
OPTION, OPTION_REPLY, REQUEST, REPLY = 0x49484156454F5054, 0x3E889045565A9, 0x25609513, 0x67446698
FIXED_NEWSTYLE, NO_ZEROES, HAS_FLAGS = 1, 2, 1
ABORT, INFO, GO = 2, 6, 7
REP_ACK, REP_INFO, REP_ERR_UNSUP = 1, 3, 1 << 31 | 1
READ, WRITE, DISCONNECT = 0, 1, 2


def exactly(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def negotiate(connection, size):
    connection.sendall(b"NBDMAGIC" + struct.pack(">QH", OPTION, FIXED_NEWSTYLE | NO_ZEROES))
    exactly(connection, 4)
    while True:
        _, option, length = struct.unpack(">QII", exactly(connection, 16))
        exactly(connection, length)

        def reply(kind, data=b""):
            connection.sendall(struct.pack(">QIII", OPTION_REPLY, option, kind, len(data)) + data)

        if option in (INFO, GO):
            reply(REP_INFO, struct.pack(">HQH", 0, size, HAS_FLAGS))
            reply(REP_ACK)
            if option == GO:
                return
        elif option == ABORT:
            reply(REP_ACK)
            raise EOFError
        else:
            reply(REP_ERR_UNSUP)


def transmit(connection, latency_s):
    while True:
        _, _, kind, handle, _, length = struct.unpack(">IHHQQI", exactly(connection, 28))
        if kind == DISCONNECT:
            return
        if kind == WRITE:
            exactly(connection, length)
        time.sleep(latency_s)
        connection.sendall(struct.pack(">IIQ", REPLY, 0, handle) + bytes(length if kind == READ else 0))


def serve(path, size, latency_us):
    """Serves one connection, in a thread that ends with it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def run():
        with listener, listener.accept()[0] as connection:
            try:
                negotiate(connection, size)
                transmit(connection, latency_us / 1e6)
            except (EOFError, OSError):
                pass

    threading.Thread(target=run, daemon=True).start()
