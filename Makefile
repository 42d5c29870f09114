# make demo    set up, build, show what ways to wait cost on this machine beside its kernel, and write a report (a minute and a half after building)
# make test    set up, then everything `make check` and `make test-guest` do: what CI runs
# make check   format, lints, tests, loom models, a short fuzzing run, docs; no set-up
# make build   the command, at target/release/meantime, and the library that `meantime run` loads; debug information beside them (*.debug)
# make install PREFIX=/usr/local DESTDIR=    the command, the C library, its header and pkg-config file; make uninstall
# make bench   the figures of docs/benchmarks.md
# make bench-fs    reads of a file: ours, the kernel's ext4 on a loop device, fuse2fs (needs root; BENCH_FS=--quick)
# make test-guest    in a virtual machine, on NVMe controllers that are not ours (GUEST_TESTS=: names of scripts/guest/tests)
# make test-served    there, Linux on a software SSD of ours, by vfio-user (QEMU 10.1 or later, QEMU=COMMAND)
# make bench-guest    there, the kernel's ways to wait beside ours: a quarter of an hour (BENCH_GUEST=: options)
# make fuzz SECONDS=600    each fuzzer for so long
# make crash STATES=100000 SEED=1    crashes of the file system: so many states that a power cut may leave (the table at the end; KEEP=DIRECTORY: images of what fails)

.PHONY: all build demo test check setup setup-test format lint unit loom fuzz crash docs bench bench-fs test-guest test-served bench-guest clean install uninstall
.DEFAULT_GOAL := build

CARGO := cargo
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
SECONDS := 15
STATES := 100000
SEED := 1
PREFIX := /usr/local
DESTDIR :=

build:
	$(CARGO) build --release --locked --bin meantime
	$(CARGO) rustc --release --locked -p meantime-preload --lib --crate-type cdylib
	@scripts/split-debug.sh $(RELEASE)/meantime $(RELEASE)/libmeantime_preload.so

# What building needs; and what testing needs beside it.
setup:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test

demo: setup build
	@scripts/demo.sh

test: setup-test check test-guest

check: format lint unit loom fuzz docs

format:
	@scripts/component.sh rustfmt $(CARGO) fmt --all --check

lint:
	@scripts/component.sh clippy $(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# One test at a time: many start processes, and one that is just being started has the locks and files of all the others. All of them, though one fails.
unit:
	RUST_TEST_THREADS=1 $(CARGO) test --workspace --locked --no-fail-fast

loom:
	@scripts/loom.sh

fuzz:
	@scripts/fuzz.sh $(SECONDS)

# Kinds of what is done, settings and devices in turn; the kernel and e2fsck recover with us where they are.
crash:
	MEANTIME_CRASH_STATES=$(STATES) MEANTIME_CRASH_SEED=$(SEED) $(if $(KEEP),MEANTIME_CRASH_KEEP="$(KEEP)") \
		$(CARGO) test -p meantime-ext4 --test crash --locked -- --exact long --ignored --nocapture

# The command and the library have one name, and would write to one directory at the same time.
docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -p meantime-cli --no-deps --locked --quiet
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --exclude meantime-cli --no-deps --locked --quiet

bench: build
	@scripts/bench.sh

bench-fs: build
	@scripts/bench-fs.sh $(BENCH_FS)

test-served:
	@scripts/guest/served.sh

test-guest:
	@scripts/guest.sh test $(GUEST_TESTS)

bench-guest:
	@scripts/guest.sh bench $(BENCH_GUEST)

# The C library with crate types of its own, or there would be no link-time optimisation.
install: build
	$(CARGO) rustc --release --locked -p meantime-capi --lib --crate-type cdylib,staticlib
	@scripts/split-debug.sh $(RELEASE)/libmeantime_c.so
	@scripts/install.sh install --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

uninstall:
	@scripts/install.sh uninstall --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

clean:
	$(CARGO) clean
	rm -rf out
