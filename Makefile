# copyscope: `make help` lists the targets; V=1 shows the commands.

# Every rule is here: trying the built-in ones for each file takes most of the time of finding nothing to do.
MAKEFLAGS += --no-builtin-rules

# Ubuntu's bpftool and perf are scripts that look for a build of the running kernel; one of another kernel works as well.
OTHER_BUILD := $(if $(shell PATH=$$PATH:/usr/sbin:/sbin bpftool version 2>/dev/null),,$(lastword $(sort $(wildcard /usr/lib/linux-tools/*/bpftool))))
# Where Debian has bpftool, and its users do not look.
export PATH := $(if $(OTHER_BUILD),$(dir $(OTHER_BUILD)):)$(PATH):/usr/sbin:/sbin

OUTPUT := .output
CLANG ?= clang
CFLAGS ?= -O2 -g
CFLAGS += -std=gnu11 -Wall -Wextra -Werror
MULTIARCH_INCLUDE := $(addprefix -I,$(wildcard /usr/include/$(shell uname -m)-linux-gnu))
PYTHON := .venv/bin/python3
PYTEST := $(PYTHON) -P -B -m pytest -p no:cacheprovider

PREFIX ?= /usr/local
DESTDIR ?=
IMPL ?= zerocopy
RESULTS ?=
PROFILE_ARGS ?=
KERNELS ?=
FUZZ ?= 100000
EXP ?= quick
SWEEP_ARGS ?=
MATRIX ?=
COMPILERS ?=
BOOTS ?=
SUITES ?=
EXTENT ?= all
OLD ?= main
IMAGE_ARGS ?=
KEEP ?=

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

# Under sudo, what is built belongs to the invoking user; only what needs root runs as root. Who is no longer root has no user to become.
SUDO_HOME = $(shell getent passwd $(SUDO_UID) | cut -d: -f6)
AS_USER := $(if $(and $(SUDO_UID),$(filter 0,$(shell id -u))),setpriv --reuid=$(SUDO_UID) --regid=$(SUDO_GID) --init-groups env HOME=$(SUDO_HOME) USER=$(SUDO_USER) LOGNAME=$(SUDO_USER))

# sudo takes the proxies of whoever called it away; what fetches something needs them.
ifneq ($(and $(SUDO_UID),$(filter 0,$(MAKELEVEL))),)
$(foreach name,$(shell tools/proxies.sh | cut -d= -f1),$(eval export $(name) := $$(shell tools/proxies.sh $(name))))
endif

# C files are compiled on all processors, if nobody said on how many.
PARALLEL = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc) --output-sync=target)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all artifacts static install uninstall dist deps deps-test deps-kernels deps-consumers profile sweep report bench cookbook examples test test-all test-more check check-all check-live check-live-all trusted fuzz check-kernels check-two-hosts check-simulator check-pmu check-compilers deps-compilers check-distributions check-dist image check-consumers check-records lint format golden pages clean help

all: ## Build everything (no root)
	$(Q)$(AS_USER) $(MAKE) --no-print-directory $(PARALLEL) artifacts

artifacts: $(OUTPUT)/traffic $(OUTPUT)/collector $(OUTPUT)/xdp_pass.bpf.o .venv/.package .venv/.ready $(OUTPUT)/.bytecode

include src/traffic/traffic.mk
include src/collector/collector.mk
include src/guest/guest.mk
include tools/dist.mk

$(OUTPUT) $(OUTPUT)/tests:
	$(Q)mkdir -p $@

# The package is found by a path from site-packages: a tree that is copied with its environment has its own.
.venv/.package:
	$(Q)test -x $(PYTHON) || { python=$$(tools/python.sh ensurepip) && "$$python" -m venv .venv; }
	$(Q)cd .venv/lib/python3*/site-packages && echo ../../../../tools > copyscope.pth
	$(Q)touch $@

# Everything that runs is pinned with its hash; pip checks them. Without a network: tools/pinned.sh.
.venv/.ready: requirements.txt | .venv/.package
	$(call say,VENV,.venv)
	$(Q)tools/pinned.sh $< rich msgspec jinja2
	$(Q)touch $@

# What a profile does without: tests; numbers, plots and files of sweeps; completion for shells, which only `make install` needs; what
# asks the records of a fleet, and what asks its hosts; what writes OpenMetrics; what builds a wheel.
.venv/.ready-test .venv/.ready-report .venv/.ready-install .venv/.ready-fleet .venv/.ready-ansible .venv/.ready-serve .venv/.ready-dist: .venv/.ready-%: requirements-%.txt .venv/.ready
	$(call say,VENV,$*)
	$(Q)tools/pinned.sh $<
	$(Q)touch $@

.venv/.ready-install: .venv/.ready-report .venv/.ready-serve

# Root does not write bytecode into the user's tree (bin/copyscope), so it is made here.
$(OUTPUT)/.bytecode: .venv/.ready $(shell find tools/copyscope -name '*.py')
	$(Q)$(PYTHON) -P -m compileall -q tools/copyscope
	$(Q)touch $@

install: ## copyscope on PATH, with its programs, environment, man pages and completion: PREFIX=/usr/local DESTDIR= (root)
	$(Q)$(AS_USER) $(MAKE) --no-print-directory artifacts .venv/.ready-install
	$(Q)$(AS_USER) tools/built_of.sh $(OUTPUT)/built-of.json
	$(Q)tools/install.sh install "$(DESTDIR)" "$(PREFIX)"

uninstall: ## Remove what `make install` put there: PREFIX, DESTDIR (root)
	$(Q)tools/install.sh uninstall "$(DESTDIR)" "$(PREFIX)"

static: ## Collector and traffic with all their libraries: .output/static/collector, .output/guest/traffic
	$(Q)$(AS_USER) $(MAKE) --no-print-directory $(OUTPUT)/static/collector $(OUTPUT)/guest/traffic

image: ## A container image of the Debian package, by buildah, podman or docker: IMAGE_ARGS="--build-arg BASE=..." (network)
	$(Q)test -e "$(firstword $(wildcard $(OUTPUT)/dist/copyscope_*.deb))" || $(MAKE) --no-print-directory dist
	$(Q)$(or $(shell command -v buildah podman docker | head -1),$(error image: buildah, podman and docker: none is installed)) build -t copyscope $(IMAGE_ARGS) -f Containerfile .

deps: ## Install what is missing (apt, dnf, zypper, pacman; root), saying what first
	$(Q)tools/deps.sh run

deps-test:
	$(Q)tools/deps.sh run test

deps-kernels:
	$(Q)tools/deps.sh run test kernels

profile: trusted deps all ## Install, build, run: IMPL=zerocopy PROFILE_ARGS="--size 64K" (root)
	$(Q)bin/copyscope run --impl $(IMPL) $(PROFILE_ARGS)

sweep: trusted deps all ## Install, build, run an experiment: EXP=quick SWEEP_ARGS="--budget 20m" (root)
	$(Q)bin/copyscope sweep $(EXP) $(SWEEP_ARGS)

report: .venv/.package .venv/.ready-report ## Report, plots and tables from the records of sweeps (no root): RESULTS=results/HOST/EXPERIMENT, or all
	$(Q)$(AS_USER) bin/copyscope report $(RESULTS)

# What root runs here: the tree as bin/copyscope looks at it, and what only make and the tests read. `deps` may have to bring Python first.
trusted:
	$(Q)[ "$$(id -u)" != 0 ] || ! python=$$(tools/python.sh 2> /dev/null) || "$$python" -ISB tools/copyscope/trust.py "$(realpath .)" tests pyproject.toml $(wildcard requirements*.txt)

test: trusted deps-test all ## Install, build, run the tests that decide most: five minutes (root)
	$(Q)$(AS_USER) $(MAKE) --no-print-directory check
	$(Q)$(MAKE) --no-print-directory check-live

test-all: test-more ## Everything that `make test` leaves out, other kernels and distributions with it: an hour at most (root, network)
	$(Q)$(MAKE) --no-print-directory check-kernels MATRIX=--least KERNELS="5.10 6.1 6.12 7.x 6.12-arm64"
	$(Q)$(MAKE) --no-print-directory check-simulator EXTENT=brief
	$(Q)$(MAKE) --no-print-directory check-pmu EXTENT=brief
	$(Q)$(MAKE) --no-print-directory check-compilers COMPILERS="13 17 19" KERNELS=here
	$(Q)$(MAKE) --no-print-directory check-distributions SUITES=trixie EXTENT=brief
	$(Q)$(MAKE) --no-print-directory check-two-hosts
	$(Q)$(MAKE) --no-print-directory check-consumers

test-more: trusted deps-test all
	$(Q)$(AS_USER) $(MAKE) --no-print-directory check-all
	$(Q)$(MAKE) --no-print-directory check-live-all

check: artifacts .venv/.ready-test .venv/.ready-install .venv/.ready-fleet ## Pure tests and C unit tests (no root, no BPF)
	$(Q)$(MAKE) --no-print-directory $(PARALLEL) $(OUTPUT)/tests/unit $(OUTPUT)/tests/traffic-drill
	$(Q)$(OUTPUT)/tests/unit
	$(Q)$(MAKE) --no-print-directory -j4 --output-sync=target check-pure-a-d check-pure-e-l check-pure-m-r check-pure-s-z

# The thread sanitizer has its own places in memory, and addresses may be too random for them (vm.mmap_rnd_bits).
NOT_RANDOM = $(shell setarch -R true 2>/dev/null && echo setarch -R)

check-all: artifacts .venv/.ready-test .venv/.ready-install .venv/.ready-fleet .venv/.ready-ansible ## C unit tests under the thread sanitizer, pure tests marked `all` (no root)
	$(Q)$(MAKE) --no-print-directory $(PARALLEL) $(OUTPUT)/tests/unit-threads
	$(Q)$(NOT_RANDOM) $(OUTPUT)/tests/unit-threads
	$(Q)$(PYTEST) -q -m all tests/pure

# Four processes: half of a test's time is waiting for what it started.
check-pure-%:
	$(Q)$(PYTEST) -q --timeout=60 -m "not all" tests/pure/test_[$*]*.py

fuzz: artifacts .venv/.ready-test .venv/.ready-report ## 100,000 odd command lines, records and experiments: FUZZ=N (no root)
	$(Q)COPYSCOPE_FUZZ=$(FUZZ) $(PYTEST) --timeout 0 -q tests/pure/test_fuzz.py # each case has a limit of its own

# What live tests start, here and in guests.
LIVE_PROGRAMS := $(addprefix $(OUTPUT)/tests/,traffic-drill sends crowd moves faults acks copies encrypts threads copies-static copies-stripped refusing.so) \
	$(if $(filter x86_64,$(shell uname -m)),$(OUTPUT)/tests/narrow-32 $(OUTPUT)/tests/narrow-64)

# Other programs of the machine disturb a live test now and then. What fails runs a second time: if it passes then, it is named
# FLAKY at the end (tests/conftest.py).
LIVE := $(PYTEST) -p pytest_rerunfailures --reruns 1 --reruns-delay 1 -q tests/live

check-live: trusted artifacts .venv/.ready-test .venv/.ready-serve $(LIVE_PROGRAMS) ## The live tests that decide most, on this kernel (root)
	$(Q)$(LIVE) -m "not all"

check-live-all: trusted artifacts .venv/.ready-test .venv/.ready-serve .venv/.ready-ansible $(LIVE_PROGRAMS) $(OUTPUT)/tests/collector-threads ## The other live tests, marked `all` (root)
	$(Q)test -x /usr/sbin/sshd || $(MAKE) --no-print-directory $(OUTPUT)/tests/openssh || true
	$(Q)$(LIVE) -m all

# The guests see this tree read-only, so everything must be built before.
check-kernels: deps-kernels all .venv/.ready-test $(LIVE_PROGRAMS) ## Live tests on Debian kernels 5.10 to 7.x in QEMU: KERNELS="6.1 7.x" MATRIX=--brief|--least (root, network)
	$(Q)PYTHONPATH=tests/kernels $(PYTHON) -P -B tests/kernels/matrix.py $(MATRIX) $(KERNELS)

check-two-hosts: deps-kernels all .venv/.ready-test $(OUTPUT)/tests/cabled ## Sender and receiver on two guests with kernels of their own, over e1000: KERNELS="6.12 6.12-arm64" RUNS=crossover, RUNS=why (network)
	$(Q)test -x /usr/sbin/sshd || $(MAKE) --no-print-directory $(OUTPUT)/tests/openssh
	$(Q)PYTHONPATH=tests/kernels:tests/live $(PYTHON) -P -B tests/kernels/two_hosts.py $(addprefix --only ,$(RUNS)) $(KERNELS)

check-simulator: deps-kernels all .venv/.ready-test ## Function hooks and samples against every instruction of a simulated guest: KERNELS="6.1 6.12 7.x" EXTENT=brief (network)
	$(Q)PYTHONPATH=tests/simulator $(PYTHON) -P -B tests/simulator/truth.py $(if $(filter brief,$(EXTENT)),--brief) $(KERNELS)

check-pmu: deps-kernels all .venv/.ready-test ## Both tiers' hardware counters against a guest's PMU of known counts: EXTENT=brief BOOTS="hybrid few" (root, network)
	$(Q)PYTHONPATH=tests/pmu:tests/simulator $(PYTHON) -P -B tests/pmu/known_counts.py $(if $(filter brief,$(EXTENT)),--brief) $(BOOTS)

deps-compilers:
	$(Q)tools/deps.sh run kernels

check-compilers: deps-compilers all .venv/.ready-test ## BPF programs of every clang that Debian has, loaded here and on Debian kernels: COMPILERS="13 19" KERNELS="here 5.10" (root, network)
	$(Q)PYTHONPATH=tests/kernels $(PYTHON) -P -B tests/kernels/compilers.py --compilers "$(COMPILERS)" $(KERNELS)

check-distributions: .venv/.ready-test ## Both commands of the README in a root of Debian 12, 13, sid and Ubuntu 24.04: SUITES=trixie EXTENT=brief (root, network)
	$(Q)tools/deps.sh distributions
	$(Q)PYTHONPATH=tests/kernels:tests/distributions $(PYTHON) -P -B tests/distributions/check.py --extent $(EXTENT) $(SUITES)

# SUITES or KERNELS that are given, and empty, are none of them.
check-dist: trusted ## What `make dist` made, used in roots without a compiler and on other kernels: SUITES=trixie KERNELS= (root, network)
	$(Q)tools/deps.sh run kernels distributions
	$(Q)$(AS_USER) $(MAKE) --no-print-directory $(PARALLEL) artifacts
	$(Q)$(AS_USER) $(MAKE) --no-print-directory dist
	$(Q)PYTHONPATH=tests/kernels:tests/dist $(PYTHON) -P -B tests/dist/check_dist.py $(KEEP) $(if $(filter command%,$(origin SUITES)),--suites $(SUITES)) $(if $(filter command%,$(origin KERNELS)),--kernels $(KERNELS))

deps-consumers: artifacts .venv/.ready-test
	$(Q)tools/deps.sh consumers
	$(Q)$(AS_USER) $(MAKE) --no-print-directory $(OUTPUT)/tests/consumers/.ready

# Of Prometheus only promtool, unpacked and not installed: the package would start a server.
$(OUTPUT)/tests/consumers/.ready: tests/consumers/package-lock.json tests/consumers/requirements.txt | $(OUTPUT)/tests
	$(call say,GET,consumers)
	$(Q)mkdir -p $(@D) && cp tests/consumers/package.json tests/consumers/package-lock.json $(@D)
	$(Q)cd $(@D) && npm ci --silent --ignore-scripts --no-audit --no-fund
	$(Q)$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target $(@D)/python -r tests/consumers/requirements.txt
	$(Q)cd $(@D) && rm -f prometheus_*.deb && apt-get -qq download prometheus && dpkg-deb -x prometheus_*.deb prometheus
	$(Q)go build -o $(@D)/pprof cmd/pprof
	$(Q)touch $@

check-consumers: deps-consumers .venv/.ready-report .venv/.ready-serve ## Pages and exports opened by the programs that read them: Chromium, axe, speedscope, pprof, promtool, DuckDB (network)
	$(Q)$(AS_USER) $(PYTEST) -q --timeout=100 tests/consumers

check-records: .venv/.package .venv/.ready ## Derived sections of all committed records by the code of an older commit and by this tree's: OLD=main
	$(Q)$(PYTHON) -P -B tests/rederive.py $(OLD)

lint: artifacts .venv/.ready-test .venv/.ready-report .venv/.ready-serve ## ruff, mypy, shellcheck
	$(Q)$(PYTHON) -P -m ruff check tools tests
	$(Q)$(PYTHON) -P -m ruff format --check tools tests
	$(Q)$(PYTHON) -P -m mypy
	$(Q)shellcheck bin/copyscope tools/*.sh .ci/run tests/kernels/fetch.sh tests/kernels/boot.sh tests/kernels/inside tests/kernels/host_on_cable tests/kernels/accepts tests/simulator/init tests/pmu/inside tests/pmu/module.sh tests/distributions/root.sh tests/dist/inside tests/dist/guest tests/kernels/cross/inside tests/bench/cookbook.sh

format: .venv/.ready-test ## Format the Python files
	$(Q)$(PYTHON) -P -m ruff format tools tests

golden: artifacts .venv/.ready-test .venv/.ready-report ## Record the golden files anew; look at the difference before you commit it
	$(Q)COPYSCOPE_GOLDEN=1 $(PYTEST) -q tests/pure

pages: .venv/.package .venv/.ready ## docs/reference/record.md, record.schema.json and command-line.md anew, from the code
	$(Q)PYTHONPATH=tests/pages $(PYTHON) -P -B tests/pages/write.py

# Each command of a page, with what it prints now.
COMMANDS = PYTHONPATH=tests/pages:tests/live:tools $(PYTHON) -P -B tests/pages/commands.py

# Function hooks are refused on many machines: their outputs come from a guest (tests/bench/cookbook.sh).
cookbook: all .venv/.ready-test ## docs/4-cookbook.md and docs/why-zero-copy-is-slower.md anew, from real runs of every script and command (root, QEMU)
	$(Q)tests/bench/cookbook.sh
	$(Q)$(COMMANDS) docs/why-zero-copy-is-slower.md

# On a quiet machine: it takes ten minutes.
examples: all .venv/.ready-test $(LIVE_PROGRAMS) ## docs/examples and the recording in README.md anew, from real runs beside real servers (root)
	$(Q)$(COMMANDS) $(sort $(wildcard docs/examples/*.md))
	$(Q)PYTHONPATH=tests/pages:tests/live:tools $(PYTHON) -P -B tests/pages/recording.py

# An sshd for the tests of other hosts, with all that its package would bring, unpacked and not installed: the package would make it
# listen. Without it they are skipped.
$(OUTPUT)/tests/openssh: | $(OUTPUT)/tests
	$(Q)rm -rf $@.new && mkdir $@.new && cd $@.new && apt-get -qq download $$(apt-get -s install --no-install-recommends openssh-server | sed -n 's/^Inst \([^ ]*\).*/\1/p') && for deb in *.deb; do dpkg-deb -x "$$deb" .; done && mv $(abspath $@.new) $(abspath $@)

$(OUTPUT)/tests/bare_uring: BENCH_LIBS := -luring
$(OUTPUT)/tests/bare $(OUTPUT)/tests/bare_uring $(OUTPUT)/tests/pingpong: $(OUTPUT)/tests/%: tests/bench/%.c | $(OUTPUT)/tests
	$(Q)$(CC) -O2 -Wall -Wextra -Werror -pthread -o $@ $< $(BENCH_LIBS)

$(OUTPUT)/tests/sends $(OUTPUT)/tests/crowd $(OUTPUT)/tests/moves $(OUTPUT)/tests/faults $(OUTPUT)/tests/acks $(OUTPUT)/tests/copies $(OUTPUT)/tests/encrypts $(OUTPUT)/tests/threads: $(OUTPUT)/tests/%: tests/live/%.c | $(OUTPUT)/tests
	$(Q)$(CC) -O2 -Wall -Wextra -Werror -pthread -o $@ $< -ldl $(LIVE_LIBS)

$(OUTPUT)/tests/acks: LIVE_LIBS := -lbpf
$(OUTPUT)/tests/moves: tests/live/sockmap.h
$(OUTPUT)/tests/copies $(OUTPUT)/tests/copies-static $(OUTPUT)/tests/encrypts $(OUTPUT)/tests/threads: tests/live/turns.h
$(OUTPUT)/tests/sends $(OUTPUT)/tests/faults: tests/live/ring.h
$(OUTPUT)/tests/moves $(OUTPUT)/tests/sends $(OUTPUT)/tests/faults $(OUTPUT)/tests/cabled: tests/live/checked.h

$(OUTPUT)/tests/cabled: tests/kernels/cabled.c | $(OUTPUT)/tests
	$(Q)$(CC) -O2 -Wall -Wextra -Werror -Itests/live -o $@ $<

# Without a C library: the compiler of x86-64 has no other of 32 bits.
$(OUTPUT)/tests/narrow-32 $(OUTPUT)/tests/narrow-64: $(OUTPUT)/tests/narrow-%: tests/live/narrow.c | $(OUTPUT)/tests
	$(Q)$(CC) -m$* -O1 -Wall -Wextra -Werror -ffreestanding -nostdlib -static -fno-pie -no-pie -fno-stack-protector -mno-red-zone \
		-mgeneral-regs-only -o $@ $<

# The collector under the thread sanitizer.
$(OUTPUT)/tests/collector-threads: $(COLLECTOR_OBJECTS) | $(OUTPUT)/tests
	$(call say,CC,$@)
	$(Q)$(CC) $(CFLAGS) -O1 -Wno-format-truncation -fsanitize=thread -Isrc/collector -I$(OUTPUT) -Ibpf \
		$(COLLECTOR_OBJECTS:$(OUTPUT)/collector.d/%.o=src/collector/%.c) $(COLLECTOR_LIBS) -o $@

$(OUTPUT)/tests/copies-static: tests/live/copies.c | $(OUTPUT)/tests
	$(Q)$(CC) -O2 -Wall -Wextra -Werror -static -o $@ $<

$(OUTPUT)/tests/copies-stripped: $(OUTPUT)/tests/copies-static
	$(Q)strip -o $@ $<

$(OUTPUT)/tests/refusing.so: tests/live/refusing.c | $(OUTPUT)/tests
	$(Q)$(CC) -O2 -Wall -Wextra -Werror -shared -fPIC -o $@ $< -ldl

bench: deps-test all .venv/.ready-test .venv/.ready-report $(OUTPUT)/tests/bare $(OUTPUT)/tests/pingpong $(if $(filter yes,$(URING)),$(OUTPUT)/tests/bare_uring) ## Ours against iperf3, a bare loop, perf and bpftrace: BENCH=traffic (root)
	$(Q)$(PYTHON) -P -B tests/bench/bench.py $(BENCH)

clean: ## Remove what was built (not results/)
	$(Q)rm -rf $(OUTPUT) .venv

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'
