# make            the command, at target/release/meantime, and the library that `meantime run` loads
# make demo       what ways to wait cost on this machine beside its kernel, and a report
# make check      before a commit: format, lints, quick tests of what is changed and is built on it
# make test       what CI runs: installs what is missing, then everything
# make test-long  the same with repetitions: 10⁵ crash states, 10⁶ fault plans; two hours
# make crash STATES=100000 SEED=1    crashes of the file system (KEEP=DIRECTORY: images of failures)
# make crash-mount ROUNDS=1000 SEED=1    servers of a mount, and programs on it, killed
# make fuzz SECONDS=600              each fuzzer for so long
# make faults FAULTS=                errors put into a copy of the source: tests catch each; an hour
# make test-guest GUEST_TESTS=       in a virtual machine, on NVMe controllers that are not ours;
#                                   GUEST_SUITE=trixie on another of Debian's kernels
# make test-served QEMU=COMMAND      there, Linux on a software SSD of ours (QEMU 10.1 or later)
# make test-aarch64    compiles for AArch64; unit tests of what has no device, emulated
# make coverage   of the tests, at target/llvm-cov/html
# make bench      the figures of docs/benchmarks.md
# make bench-fs   reads of a file beside the kernel's ext4 and fuse2fs (root; BENCH_FS=--quick)
# make bench-guest BENCH_GUEST=      the kernel's ways to wait beside ours: a quarter of an hour
# make reproduce QUICK=1    the documents' tables and figures again: 10 minutes; all of it: 90
# make book       the pages as a book, at target/book/html
# make publish-check    crates as a registry would take them, each built from its package: minutes
# make install PREFIX=/usr/local DESTDIR=    command, manual, completions, C library, fio's engine;
#                 make uninstall
# make static     the command without libraries, for any Linux: all of it but the
#                 shared-memory path of `run`
# make release    that as an archive with manual pages, completions and sums, at
#                 target/release-archive; make test-release tries it in a bare Debian
# make deb        Debian packages, at target/deb; make test-packages tries them on a bare Debian
# make wheel      the Python package, at target/wheels; make test-python tests it

.PHONY: all build demo check test test-long setup setup-test format lint build-tests tests \
	tests-long doctests quick loom fuzz faults crash crash-mount docs coverage bench bench-fs test-guest \
	test-served bench-guest reproduce clean install uninstall static deb test-packages wheel \
	test-python publish-check release test-release \
	test-aarch64 book
.DEFAULT_GOAL := build

CARGO := cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
# cargo-nextest, cargo-deny and cargo-llvm-cov, where setup-test puts them.
export PATH := $(abspath $(TARGET))/tools/bin:$(PATH)
SECONDS := 15
STATES := 100000
ROUNDS := 1000
SEED := 1
GUEST_SUITE := bookworm
PREFIX := /usr/local
# Below PREFIX: of the C library.
LIBDIR := lib
DESTDIR :=
# Empty: debug information stays in the binaries.
SPLIT_DEBUG := scripts/split-debug.sh

build:
	$(CARGO) build --release --locked --bin meantime
	$(CARGO) rustc --release --locked -p meantime-intercept --lib --crate-type cdylib
	@$(if $(SPLIT_DEBUG),$(SPLIT_DEBUG) $(RELEASE)/meantime $(RELEASE)/libmeantime_intercept.so)

# What building needs; and what testing needs beside it.
setup:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test

# Built without link-time optimisation: in a third of the time.
demo: setup
	$(CARGO) build --profile demo --locked --bin meantime
	@scripts/demo.sh

check:
	@CHECKED="$$(scripts/check.py)" scripts/stages.sh format lint quick

# What incremental builds keep, and line numbers of backtraces, cost a clean clone a fifth of its
# time. The tests leave a quarter of two CPUs idle.
test: export CARGO_INCREMENTAL := 0
test: export CARGO_PROFILE_TEST_DEBUG := 0
test: setup-test
	@scripts/stages.sh format lint build-tests 'tests doctests | docs | loom' test-guest

# What each variable makes longer is said at the head of the test that reads it.
test-long: export MEANTIME_EXT4_IMAGES := 120
test-long: export MEANTIME_EXT4_MUTATIONS := 1000000
test-long: export MEANTIME_DISK_MUTATIONS := 1000000
test-long: export MEANTIME_FAULT_PLANS := 1000000
test-long: export MEANTIME_FAULT_PLANS_THREADED := 300
test-long: export MEANTIME_STRESS_SECONDS := 180
test-long: export MEANTIME_COHERENCE_SECONDS := 180
test-long: export MEANTIME_FIO_VERSIONS := 3.33 3.41
test-long: export MEANTIME_FUZZ_INPUTS := 10
test-long: export MEANTIME_SIMULATED_ALL := 1
test-long: export MEANTIME_CRASH_PAIRS := all
test-long: export MEANTIME_TORTURE := 1000000
test-long: export MEANTIME_FAST_SEEDS := 3
test-long: export MEANTIME_FAST_ROUNDS := 12
test-long: export LIST_ROUNDS := 12
test-long: export GUEST_LONG := 1
test-long: setup-test
	@scripts/promtool.sh
	@MAKEFLAGS="STATES=100000 ROUNDS=300 SECONDS=120" scripts/stages.sh build-tests tests-long \
		crash crash-mount fuzz doctests loom docs book publish-check test-aarch64 build wheel \
		test-python test-packages test-guest

book:
	@scripts/book.sh

test-aarch64:
	@scripts/aarch64.sh

publish-check:
	@scripts/publish-check.sh

format:
	@scripts/component.sh rustfmt $(CARGO) fmt --all --check

# Advisories count where their database can be reached.
lint:
	@scripts/component.sh clippy $(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) deny --locked --log-level error check bans licenses sources
	@if $(CARGO) deny --log-level off fetch db >/dev/null 2>&1; then \
		$(CARGO) deny --offline --log-level error check advisories; \
	else echo "lint: the database of advisories cannot be reached"; fi

# Of what tests run: the examples are linted.
TESTED := --workspace --lib --bins --tests

# Two at a time for each CPU: many sleep, or wait for the other's thread.
tests: build-tests
	$(CARGO) nextest run $(TESTED) --locked --test-threads $$((2 * $$(nproc)))

tests-long:
	$(CARGO) nextest run --profile long $(TESTED) --locked --test-threads $$((2 * $$(nproc)))

build-tests:
	$(CARGO) test $(TESTED) --locked --quiet --no-run

doctests:
	$(CARGO) test --doc --workspace --locked --quiet

quick:
	$(CARGO) nextest run --profile quick --workspace --locked $(if $(CHECKED),-E '$(CHECKED)')

loom:
	@scripts/loom.sh

fuzz:
	@scripts/fuzz.sh $(SECONDS)

faults:
	@scripts/faults.sh $(FAULTS)

# Kinds of what is done, settings and devices in turn; the kernel and e2fsck recover with us where
# they are.
crash:
	MEANTIME_CRASH_STATES=$(STATES) MEANTIME_CRASH_SEED=$(SEED) \
		$(if $(KEEP),MEANTIME_CRASH_KEEP="$(KEEP)") $(CARGO) test -p meantime-ext4 --test crash \
		--locked -- --exact long --ignored --nocapture

# Recovered by us, by the kernel and by e2fsck in turns.
crash-mount:
	MEANTIME_CRASH_ROUNDS=$(ROUNDS) MEANTIME_CRASH_SEED=$(SEED) \
		$(CARGO) test -p meantime-mount --test crash --locked -- --ignored --nocapture

# The command and the library have one name, and would write to one directory at the same time.
docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -p meantime-cli --no-deps --locked --quiet
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --exclude meantime-cli --no-deps --locked \
		--quiet

coverage:
	rustup component add llvm-tools
	$(CARGO) llvm-cov nextest --workspace --locked --html

bench: build
	@scripts/bench.sh

bench-fs: build
	@scripts/bench-fs.sh $(BENCH_FS)

test-served:
	@scripts/guest/served.sh

test-guest:
	@GUEST_SUITE=$(GUEST_SUITE) scripts/guest.sh test $(GUEST_TESTS)

# With what a virtual machine measures, if there can be one.
reproduce: build
	@scripts/reproduce.sh $(if $(QUICK),--quick)

bench-guest:
	@scripts/guest.sh bench $(BENCH_GUEST)

wheel:
	@scripts/wheel.sh

test-python: build wheel
	@scripts/test-python.sh

# The C library and fio's engine with crate types of their own, or there would be no link-time
# optimisation.
install: build
	$(CARGO) rustc --release --locked -p meantime-capi --lib --crate-type cdylib,staticlib
	$(CARGO) rustc --release --locked -p meantime-fio-engine --lib --crate-type cdylib
	@$(if $(SPLIT_DEBUG),$(SPLIT_DEBUG) $(RELEASE)/libmeantime_c.so $(RELEASE)/libmeantime_fio.so)
	@scripts/install.sh install --prefix "$(PREFIX)" --libdir "$(LIBDIR)" --destdir "$(DESTDIR)"

uninstall:
	@scripts/install.sh uninstall --prefix "$(PREFIX)" --libdir "$(LIBDIR)" --destdir "$(DESTDIR)"

static: setup
	@scripts/static.sh

release: static
	@scripts/release.sh

test-release: release
	@scripts/release.sh test

deb:
	@scripts/setup.sh deb
	@scripts/deb.sh

test-packages: deb wheel
	@scripts/packages-test.sh

clean:
	$(CARGO) clean
	rm -rf out
