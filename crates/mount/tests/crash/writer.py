"""Programs that keep numbers durable on a mount, and what looks whether they are there.

    writer.py write KIND PATH NOTES    writes one number after the other, until it is killed
    writer.py check KIND PATH NOTES    fails if one that was acknowledged is not there

Number n is kept under the key n % KEYS. It is noted, in NOTES, which is not on the mount, when it
is said to be durable. So a key has the last noted number of its own, or the one after the last.
"""

import ctypes
import mmap
import os
import sqlite3
import sys

KEYS = 64


def value(n):
    return (b"%d." % n) * 300


class Sqlite:
    def __init__(self, path, mode):
        self.db = sqlite3.connect(path, isolation_level=None, timeout=20)
        self.db.execute("pragma journal_mode=" + mode)
        # With a rollback journal the commit is the journal's deletion: extra syncs its directory.
        self.db.execute("pragma synchronous=extra")
        self.parent = os.open(os.path.dirname(path), os.O_RDONLY)
        self.db.execute("create table if not exists t(k integer primary key, n integer, v blob)")

    def put(self, key, n):
        self.db.execute("insert or replace into t values(?, ?, ?)", (key, n, value(n)))
        # SQLite succeeds if it cannot open the directory to sync it, as when the server was killed
        # just after the journal's deletion.
        os.fsync(self.parent)

    def all(self):
        found = self.db.execute("pragma integrity_check").fetchall()
        assert found == [("ok",)], found
        rows = self.db.execute("select k, n, v from t").fetchall()
        assert all(v == value(n) for _, n, v in rows), "a row with another's content"
        return {k: n for k, n, _ in rows}


class RocksDb:
    """By its C library, as rocksdb-tools bring it."""

    def __init__(self, path, _mode):
        self.lib = lib = ctypes.CDLL("librocksdb.so.7.8")
        for name in ["options_create", "open", "writeoptions_create", "readoptions_create", "get"]:
            getattr(lib, "rocksdb_" + name).restype = ctypes.c_void_p
        options = ctypes.c_void_p(lib.rocksdb_options_create())
        lib.rocksdb_options_set_create_if_missing(options, ctypes.c_ubyte(1))
        # Small, so that it writes tables and merges them.
        lib.rocksdb_options_set_write_buffer_size(options, ctypes.c_size_t(1 << 17))
        lib.rocksdb_options_set_paranoid_checks(options, ctypes.c_ubyte(1))
        self.error = ctypes.c_char_p()
        self.db = ctypes.c_void_p(
            lib.rocksdb_open(options, path.encode(), ctypes.byref(self.error)))
        self.happened()
        self.synced = ctypes.c_void_p(lib.rocksdb_writeoptions_create())
        lib.rocksdb_writeoptions_set_sync(self.synced, ctypes.c_ubyte(1))
        self.checked = ctypes.c_void_p(lib.rocksdb_readoptions_create())

    def happened(self):
        if self.error.value:
            sys.exit("rocksdb: %s" % self.error.value.decode())

    def put(self, key, n):
        k, v = b"%d" % key, value(n)
        self.lib.rocksdb_put(self.db, self.synced, k, ctypes.c_size_t(len(k)), v,
                             ctypes.c_size_t(len(v)), ctypes.byref(self.error))
        self.happened()

    def all(self):
        found = {}
        for key in range(KEYS):
            k, size = b"%d" % key, ctypes.c_size_t()
            at = self.lib.rocksdb_get(self.db, self.checked, k, ctypes.c_size_t(len(k)),
                                      ctypes.byref(size), ctypes.byref(self.error))
            self.happened()
            if at:
                content = ctypes.string_at(at, size.value)
                self.lib.rocksdb_free(ctypes.c_void_p(at))
                found[key] = n = int(content.split(b".")[0])
                assert content == value(n), "a value with another's content"
        return found


class Mapped:
    """A number at the beginning of each page of a mapped file."""

    def __init__(self, path, _mode):
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, KEYS * 4096)
        os.fsync(fd)
        parent = os.open(os.path.dirname(path), os.O_RDONLY)
        os.fsync(parent)
        self.map = mmap.mmap(fd, KEYS * 4096)

    def put(self, key, n):
        self.map[key * 4096:key * 4096 + 8] = n.to_bytes(8, "little")
        self.map.flush(key * 4096, 4096)

    def all(self):
        pages = {k: self.map[k * 4096:k * 4096 + 8] for k in range(KEYS)}
        found = {k: int.from_bytes(number, "little") for k, number in pages.items()}
        return {k: n for k, n in found.items() if n}


def last_noted(notes):
    with open(notes, "a+b") as file:
        file.seek(0)
        # A line that was not finished was not noted.
        return max([int(line) for line in file if line.endswith(b"\n")], default=0)


def main():
    what, kind, path, notes = sys.argv[1:]
    kept = {
        "delete": Sqlite, "truncate": Sqlite, "wal": Sqlite, "rocksdb": RocksDb, "mapped": Mapped,
    }[kind](path, kind)
    noted = last_noted(notes)
    if what == "write":
        to = os.open(notes, os.O_WRONLY | os.O_APPEND)
        n = noted
        while True:
            n += 1
            kept.put(n % KEYS, n)
            os.write(to, b"%d\n" % n)
    found = kept.all()
    for key in range(KEYS):
        last = noted - (noted - key) % KEYS
        allowed = {last if last > 0 else None}
        if (noted + 1) % KEYS == key:
            allowed.add(noted + 1)
        # (Key 0 has KEYS as its first number.)
        assert found.get(key) in allowed, "%s: key %d has %s, and %d was noted" % (
            kind, key, found.get(key), noted)


main()
