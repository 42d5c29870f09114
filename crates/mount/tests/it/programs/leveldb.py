"""LevelDB by its C library: what was put is there, in this process and in the next."""

import ctypes
import os
import sys

COUNT = 4000
lib = ctypes.CDLL("libleveldb.so.1d")
for name in ["options_create", "open", "writeoptions_create", "readoptions_create",
             "create_iterator", "iter_key", "iter_value"]:
    getattr(lib, "leveldb_" + name).restype = ctypes.c_void_p
error = ctypes.c_char_p()


def done():
    if error.value:
        sys.exit("leveldb: %s" % error.value.decode())


def key(n):
    return b"%08d" % n


def value(n):
    return b"%d." % n * 40


def opened():
    options = ctypes.c_void_p(lib.leveldb_options_create())
    lib.leveldb_options_set_create_if_missing(options, ctypes.c_ubyte(1))
    lib.leveldb_options_set_paranoid_checks(options, ctypes.c_ubyte(1))
    # Small, so that it writes tables, which it maps, and merges them.
    lib.leveldb_options_set_write_buffer_size(options, ctypes.c_size_t(1 << 16))
    db = ctypes.c_void_p(lib.leveldb_open(options, b"db", ctypes.byref(error)))
    done()
    return db


def put():
    db = opened()
    for n in range(COUNT):
        options = ctypes.c_void_p(lib.leveldb_writeoptions_create())
        lib.leveldb_writeoptions_set_sync(options, ctypes.c_ubyte(n % 100 == 0))
        k, v = key(n * 7919 % COUNT), value(n * 7919 % COUNT)
        lib.leveldb_put(db, options, k, ctypes.c_size_t(len(k)), v, ctypes.c_size_t(len(v)),
                        ctypes.byref(error))
        done()
        lib.leveldb_writeoptions_destroy(options)
    # The process ends as if it had been killed: what the kernel has is in the files.
    os._exit(0)


def look():
    db = opened()
    options = ctypes.c_void_p(lib.leveldb_readoptions_create())
    lib.leveldb_readoptions_set_verify_checksums(options, ctypes.c_ubyte(1))
    at, size = ctypes.c_void_p(lib.leveldb_create_iterator(db, options)), ctypes.c_size_t()
    lib.leveldb_iter_seek_to_first(at)
    n = 0
    while lib.leveldb_iter_valid(at) & 0xff:
        k = ctypes.string_at(lib.leveldb_iter_key(at, ctypes.byref(size)), size.value)
        v = ctypes.string_at(lib.leveldb_iter_value(at, ctypes.byref(size)), size.value)
        assert (k, v) == (key(n), value(n)), (k, n)
        n += 1
        lib.leveldb_iter_next(at)
    lib.leveldb_iter_get_error(at, ctypes.byref(error))
    done()
    lib.leveldb_iter_destroy(at)
    lib.leveldb_close(db)
    print(n)


put() if sys.argv[1] == "put" else look()
