# copyscope: `make help` lists the targets; V=1 shows the commands.

# No built-in rules are used. Trying them for each file would take most of the time of a build that has nothing to do.
MAKEFLAGS += --no-builtin-rules

# On Ubuntu, bpftool and perf are scripts that require a build for the running kernel. A build for another kernel works, too.
OTHER_BUILD := $(if $(shell PATH=$$PATH:/usr/sbin:/sbin bpftool version 2>/dev/null),,$(lastword $(sort $(wildcard /usr/lib/linux-tools/*/bpftool))))
# Debian installs bpftool in sbin, which is not in the PATH of users.
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
CROSSCHECK_ARGS ?=
MATRIX ?=
COMPILERS ?=
BOOTS ?=
SUITES ?=
EXTENT ?= all
OLD ?= main
IMAGE_ARGS ?=
KEEP ?=
BUILT ?=

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

# Under sudo, files are built as the invoking user, and only commands that need root run as root. A process that is not root does
# not change its user.
SUDO_HOME = $(shell getent passwd $(SUDO_UID) | cut -d: -f6)
AS_USER := $(if $(and $(SUDO_UID),$(filter 0,$(shell id -u))),setpriv --reuid=$(SUDO_UID) --regid=$(SUDO_GID) --init-groups env HOME=$(SUDO_HOME) USER=$(SUDO_USER) LOGNAME=$(SUDO_USER))

# sudo removes the caller's proxy settings. Restore them for downloads.
ifneq ($(and $(SUDO_UID),$(filter 0,$(MAKELEVEL))),)
$(foreach name,$(shell tools/proxies.sh | cut -d= -f1),$(eval export $(name) := $$(shell tools/proxies.sh $(name))))
endif

# Compile C files on all processors, unless make was called with -j.
PARALLEL = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc) --output-sync=target)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all artifacts static install uninstall dist deps deps-test deps-kernels deps-consumers profile sweep report bench crosscheck cookbook examples test test-all test-more check check-all check-live check-live-all trusted fuzz check-fuzz check-kernels check-two-hosts check-simulator check-pmu check-compilers deps-compilers check-distributions check-dist image check-consumers check-records check-statistics check-soak lint format golden pages clean help

all: ## Build everything (no root)
	$(Q)$(AS_USER) $(MAKE) --no-print-directory $(PARALLEL) artifacts

artifacts: $(OUTPUT)/traffic $(OUTPUT)/collector $(OUTPUT)/xdp_pass.bpf.o .venv/.package .venv/.ready $(OUTPUT)/.bytecode

include src/traffic/traffic.mk
include src/collector/collector.mk
include src/guest/guest.mk
include tools/dist.mk

$(OUTPUT) $(OUTPUT)/tests:
	$(Q)mkdir -p $@

# A relative path in site-packages points to the package, so that a copy of this tree and its .venv uses its own package.
.venv/.package:
	$(Q)test -x $(PYTHON) || { python=$$(tools/python.sh ensurepip) && "$$python" -m venv .venv; }
	$(Q)cd .venv/lib/python3*/site-packages && echo ../../../../tools > copyscope.pth
	$(Q)touch $@

# All Python packages are pinned with their hashes, which pip checks. tools/pinned.sh explains installation without a network.
.venv/.ready: requirements/run.txt | .venv/.package
	$(call say,VENV,.venv)
	$(Q)tools/pinned.sh $< rich msgspec jinja2
	$(Q)touch $@

# Packages that `copyscope run` does not need, in groups: tests; reports and plots; shell completion (for `make install`); queries of a
# fleet's records; ansible for a fleet's hosts; OpenMetrics; building wheels; the
# referee of our statistics.
.venv/.ready-test .venv/.ready-report .venv/.ready-install .venv/.ready-fleet .venv/.ready-ansible .venv/.ready-serve .venv/.ready-dist .venv/.ready-statistics: .venv/.ready-%: requirements/%.txt .venv/.ready
	$(call say,VENV,$*)
	$(Q)tools/pinned.sh $<
	$(Q)touch $@

.venv/.ready-install: .venv/.ready-report .venv/.ready-serve

# Compile the bytecode here, because copyscope does not write any when it runs as root (bin/copyscope).
$(OUTPUT)/.bytecode: .venv/.ready $(shell find tools/copyscope -name '*.py')
	$(Q)$(PYTHON) -P -m compileall -q tools/copyscope
	$(Q)touch $@

install: ## Install copyscope with its programs, environment, man pages and completion: PREFIX=/usr/local DESTDIR= (root)
	$(Q)$(AS_USER) $(MAKE) --no-print-directory artifacts .venv/.ready-install
	$(Q)$(AS_USER) tools/built_of.sh $(OUTPUT)/built-of.json
	$(Q)tools/install.sh install "$(DESTDIR)" "$(PREFIX)"

uninstall: ## Remove the files that `make install` installed: PREFIX, DESTDIR (root)
	$(Q)tools/install.sh uninstall "$(DESTDIR)" "$(PREFIX)"

static: ## Build static programs: .output/static/collector, .output/guest/traffic
	$(Q)$(AS_USER) $(MAKE) --no-print-directory $(OUTPUT)/static/collector $(OUTPUT)/guest/traffic

image: ## Build a container image from the Debian package, by buildah, podman or docker: IMAGE_ARGS="--build-arg BASE=..." (network)
	$(Q)test -e "$(firstword $(wildcard $(OUTPUT)/dist/copyscope_*.deb))" || $(MAKE) --no-print-directory dist
	$(Q)$(or $(shell command -v buildah podman docker | head -1),$(error image: found neither buildah nor podman nor docker; install one of them)) build -t copyscope $(IMAGE_ARGS) -f tools/Containerfile .

deps: ## List and install missing packages by apt, dnf, zypper or pacman (root)
	$(Q)tools/deps.sh run

deps-test:
	$(Q)tools/deps.sh run test

deps-kernels:
	$(Q)tools/deps.sh run test kernels

profile: trusted deps all ## Install packages, build, and run once: IMPL=zerocopy PROFILE_ARGS="--size 64K" (root)
	$(Q)bin/copyscope run --impl $(IMPL) $(PROFILE_ARGS)

sweep: trusted deps all ## Install packages, build, run an experiment, and make its page: EXP=quick SWEEP_ARGS="--budget 20m" (root)
	$(Q)$(AS_USER) $(MAKE) --no-print-directory .venv/.ready-report || true # without a network, the sweep ends without a page
	$(Q)bin/copyscope sweep $(EXP) $(SWEEP_ARGS)

report: .venv/.package .venv/.ready-report ## Write report, plots and tables from the records of sweeps (no root): RESULTS=results/HOST/EXPERIMENT; default: all
	$(Q)$(AS_USER) bin/copyscope report $(RESULTS)

# As root, check that only trusted users can change the files that root is about to run: the tree, as bin/copyscope checks it, and the
# files of make and the tests. Without Python there is no check; `deps` installs it.
trusted:
	$(Q)[ "$$(id -u)" != 0 ] || ! python=$$(tools/python.sh 2> /dev/null) || "$$python" -ISB tools/copyscope/base/trust.py "$(realpath .)" tests pyproject.toml requirements

test: trusted deps-test all ## Install packages, build, and run the most important tests: five minutes (root)
	$(Q)$(AS_USER) $(MAKE) --no-print-directory check
	$(Q)$(MAKE) --no-print-directory check-live

test-all: test-more ## Run all tests that `make test` leaves out, also on other kernels and distributions: at most an hour (root, network)
	$(Q)$(MAKE) --no-print-directory check-kernels MATRIX=--least KERNELS="5.10 6.12 7.x 6.12-arm64"
	$(Q)$(MAKE) --no-print-directory check-simulator EXTENT=brief
	$(Q)$(MAKE) --no-print-directory check-pmu EXTENT=brief
	$(Q)$(MAKE) --no-print-directory check-compilers COMPILERS="13 17 19" KERNELS=here
	$(Q)$(MAKE) --no-print-directory check-distributions SUITES=trixie EXTENT=brief
	$(Q)$(MAKE) --no-print-directory check-two-hosts
	$(Q)$(MAKE) --no-print-directory check-consumers
	$(Q)$(AS_USER) $(MAKE) --no-print-directory check-statistics

test-more: trusted deps-test all
	$(Q)$(AS_USER) $(MAKE) --no-print-directory check-all
	$(Q)$(MAKE) --no-print-directory check-live-all

check: artifacts .venv/.ready-test .venv/.ready-install .venv/.ready-fleet ## Run pure tests and C unit tests (no root, no BPF)
	$(Q)$(MAKE) --no-print-directory $(PARALLEL) $(OUTPUT)/tests/unit
	$(Q)$(OUTPUT)/tests/unit
	$(Q)$(MAKE) --no-print-directory -j4 --output-sync=target check-pure-a-d check-pure-e-l check-pure-m-r check-pure-s-z

# Disable address randomisation, because the thread sanitizer uses fixed address ranges (vm.mmap_rnd_bits).
NOT_RANDOM = $(shell setarch -R true 2>/dev/null && echo setarch -R)

check-all: artifacts .venv/.ready-test .venv/.ready-install .venv/.ready-fleet .venv/.ready-ansible ## Run C unit tests under the thread sanitizer, and pure tests marked `all` (no root)
	$(Q)$(MAKE) --no-print-directory $(PARALLEL) $(OUTPUT)/tests/unit-threads
	$(Q)$(NOT_RANDOM) $(OUTPUT)/tests/unit-threads
	$(Q)$(PYTEST) -q -m all tests/pure

# Four processes run tests at a time, because tests spend half of their time waiting for programs.
check-pure-%:
	$(Q)$(PYTEST) -q -m "not all" tests/pure/test_[$*]*.py

fuzz: artifacts .venv/.ready-test .venv/.ready-report ## Test 100,000 random command lines, records and experiments: FUZZ=N (no root)
	$(Q)COPYSCOPE_FUZZ=$(FUZZ) $(PYTEST) --timeout 0 -q tests/pure/test_fuzz.py # each case has its own time limit

check-fuzz: artifacts ## Mutate tables of ELF, Go and DWARF and perf maps, read under a limit of 200 MB: FUZZ_S=300 (no root)
	$(Q)PYTHONPATH=tools $(PYTHON) -P -B tests/fuzz_tables.py $(or $(FUZZ_S),120)

# Programs that live tests start, on this machine and in guests
LIVE_PROGRAMS := $(addprefix $(OUTPUT)/tests/,sends crowd moves pipes faults acks copies encrypts threads copies-static copies-stripped refusing.so) \
	$(if $(filter x86_64,$(shell uname -m)),$(OUTPUT)/tests/narrow-32 $(OUTPUT)/tests/narrow-64)

# Other programs on the machine sometimes disturb a live test. Tests that fail run again in a new process, which measures
# everything anew, at most twice. Status 1 of pytest: tests failed.
LIVE := $(PYTHON) -P -B -m pytest -o cache_dir=$(OUTPUT)/tests/failed -q tests/live
again = || { [ $$? = 1 ] && printf '\n== the failed tests, run again ($(2))\n' && $(LIVE) --last-failed -m $(1); }
run-live = $(LIVE) --cache-clear -m $(1) $(call again,$(1),1 of 2) $(call again,$(1),2 of 2)

check-live: trusted artifacts .venv/.ready-test .venv/.ready-serve $(LIVE_PROGRAMS) ## Run the most important live tests on this kernel (root)
	$(Q)$(call run-live,"not all")

check-live-all: trusted artifacts .venv/.ready-test .venv/.ready-serve .venv/.ready-ansible $(LIVE_PROGRAMS) $(OUTPUT)/tests/collector-threads ## Run the other live tests, marked `all` (root)
	$(Q)test -x /usr/sbin/sshd || $(MAKE) --no-print-directory $(OUTPUT)/tests/openssh || true
	$(Q)$(call run-live,all)

# Guests mount this tree read-only, so build everything before.
check-kernels: deps-kernels all .venv/.ready-test $(LIVE_PROGRAMS) ## Run the live tests on Debian kernels 5.10 to 7.x in QEMU: KERNELS="6.1 7.x" MATRIX=--brief, MATRIX=--least (root, network)
	$(Q)PYTHONPATH=tests/kernels $(PYTHON) -P -B tests/kernels/matrix.py $(MATRIX) $(KERNELS)

check-two-hosts: deps-kernels all .venv/.ready-test $(OUTPUT)/tests/cabled ## Test sender and receiver on two guests with different kernels, over e1000: KERNELS="6.12 6.12-arm64" RUNS=crossover, RUNS=why (network)
	$(Q)test -x /usr/sbin/sshd || $(MAKE) --no-print-directory $(OUTPUT)/tests/openssh
	$(Q)PYTHONPATH=tests/kernels:tests/live $(PYTHON) -P -B tests/kernels/two_hosts.py $(addprefix --only ,$(RUNS)) $(KERNELS)

check-simulator: deps-kernels all .venv/.ready-test ## Compare function hooks and samples with every instruction of a simulated guest: KERNELS="6.1 6.12 7.x" EXTENT=brief (network)
	$(Q)PYTHONPATH=tests/simulator $(PYTHON) -P -B tests/simulator/truth.py $(if $(filter brief,$(EXTENT)),--brief) $(KERNELS)

check-pmu: deps-kernels all .venv/.ready-test ## Compare hardware counters of both tiers with a guest's PMU of known counts: EXTENT=brief BOOTS="hybrid few" (root, network)
	$(Q)PYTHONPATH=tests/pmu:tests/simulator $(PYTHON) -P -B tests/pmu/known_counts.py $(if $(filter brief,$(EXTENT)),--brief) $(BOOTS)

deps-compilers:
	$(Q)tools/deps.sh run kernels

check-compilers: deps-compilers all .venv/.ready-test ## Load BPF programs built by each clang of Debian, here and on Debian kernels: COMPILERS="13 19" KERNELS="here 5.10" (root, network)
	$(Q)PYTHONPATH=tests/kernels $(PYTHON) -P -B tests/kernels/compilers.py --compilers "$(COMPILERS)" $(KERNELS)

check-distributions: .venv/.ready-test ## Run both commands of the README in a root of Debian 12, 13, sid and Ubuntu 24.04: SUITES=trixie EXTENT=brief (root, network)
	$(Q)tools/deps.sh distributions
	$(Q)PYTHONPATH=tests/kernels:tests/distributions $(PYTHON) -P -B tests/distributions/check.py --extent $(EXTENT) $(SUITES)

# SUITES= or KERNELS= on the command line, left empty, means no suites or no kernels. With BUILT=yes the packages that are in
# .output/dist are tested.
check-dist: trusted ## Test the packages of `make dist` in roots without a compiler and on other kernels: SUITES=trixie KERNELS= BUILT=yes (root, network)
	$(Q)tools/deps.sh run kernels distributions
	$(Q)$(AS_USER) $(MAKE) --no-print-directory $(PARALLEL) artifacts
	$(if $(BUILT),,$(Q)$(AS_USER) $(MAKE) --no-print-directory dist)
	$(Q)PYTHONPATH=tests/kernels:tests/dist $(PYTHON) -P -B tests/dist/check_dist.py $(KEEP) $(if $(filter command%,$(origin SUITES)),--suites $(SUITES)) $(if $(filter command%,$(origin KERNELS)),--kernels $(KERNELS))

deps-consumers: artifacts .venv/.ready-test
	$(Q)tools/deps.sh consumers
	$(Q)$(AS_USER) $(MAKE) --no-print-directory $(OUTPUT)/tests/consumers/.ready

# Unpack promtool and node_exporter without installing their packages, because these would start servers.
$(OUTPUT)/tests/consumers/.ready: tests/consumers/package-lock.json tests/consumers/requirements.txt | $(OUTPUT)/tests
	$(call say,GET,consumers)
	$(Q)mkdir -p $(@D) && cp tests/consumers/package.json tests/consumers/package-lock.json $(@D)
	$(Q)cd $(@D) && npm ci --silent --ignore-scripts --no-audit --no-fund
	$(Q)$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target $(@D)/python -r tests/consumers/requirements.txt
	$(Q)cd $(@D) && rm -f prometheus*.deb && apt-get -qq download prometheus prometheus-node-exporter && \
		for package in prometheus*.deb; do dpkg-deb -x $$package prometheus; done
	$(Q)go build -o $(@D)/pprof cmd/pprof
	$(Q)touch $@

check-consumers: deps-consumers .venv/.ready-report .venv/.ready-serve ## Open pages and exports with the programs that read them: Chromium, axe, speedscope, pprof, promtool, node_exporter, DuckDB (network)
	$(Q)$(AS_USER) $(PYTEST) -q tests/consumers

check-records: .venv/.package .venv/.ready ## Derive all committed records with an older commit and with this tree, and compare: OLD=main
	$(Q)$(PYTHON) -P -B tests/rederive.py $(OLD)

check-statistics: .venv/.package .venv/.ready-test .venv/.ready-statistics ## Test intervals and comparisons on planted records, and against scipy: fixed seeds (no root)
	$(Q)PYTHONPATH=tests/pure $(PYTEST) -q tests/intervals

lint: artifacts .venv/.ready-test .venv/.ready-report .venv/.ready-serve ## Run ruff, mypy, shellcheck and the rules of prose
	$(Q)$(PYTHON) -P -m ruff check tools tests
	$(Q)$(PYTHON) -P -m ruff format --check tools tests
	$(Q)$(PYTHON) -P -B tests/prose_lint.py
	$(Q)$(PYTHON) -P -m mypy
	$(Q)shellcheck bin/copyscope tools/*.sh .ci/run tests/kernels/fetch.sh tests/kernels/boot.sh tests/kernels/inside tests/kernels/host_on_cable tests/kernels/accepts tests/simulator/init tests/pmu/inside tests/pmu/module.sh tests/distributions/root.sh tests/dist/inside tests/dist/guest tests/kernels/cross/inside tests/bench/cookbook.sh

format: .venv/.ready-test ## Format the Python files
	$(Q)$(PYTHON) -P -m ruff format tools tests

# test_first_screen.py is last, because it also reads files that test_render.py writes.
golden: artifacts .venv/.ready-test .venv/.ready-report ## Record the golden files again; read the difference before you commit it
	$(Q)COPYSCOPE_GOLDEN=1 $(PYTEST) -q $(addprefix tests/pure/test_,ledger.py render.py first_screen.py)

pages: .venv/.package .venv/.ready $(OUTPUT)/traffic ## Regenerate pages and parts of pages from code and records, and the list of traffic options
	$(Q)$(OUTPUT)/traffic options --json > $(OUTPUT)/traffic_options.json
	$(Q)cp $(OUTPUT)/traffic_options.json tools/copyscope/plan
	$(Q)PYTHONPATH=tests/pages $(PYTHON) -P -B tests/pages/write.py

# Run each command of a page and insert its current output.
COMMANDS = PYTHONPATH=tests/pages:tests/live:tools $(PYTHON) -P -B tests/pages/commands.py

# Many machines do not allow function hooks, so outputs that need them come from a guest (tests/bench/cookbook.sh).
cookbook: all .venv/.ready-test ## Refresh the outputs in docs/4-cookbook.md and docs/why-zero-copy-is-slower.md from real runs (root, QEMU)
	$(Q)tests/bench/cookbook.sh
	$(Q)$(COMMANDS) docs/why-zero-copy-is-slower.md

# Run this on an idle machine. It takes ten minutes.
examples: all .venv/.ready-test $(LIVE_PROGRAMS) ## Refresh docs/examples and the recording in README.md from real runs with real servers (root)
	$(Q)$(COMMANDS) $(sort $(wildcard docs/examples/*.md))
	$(Q)PYTHONPATH=tests/pages:tests/live:tools $(PYTHON) -P -B tests/pages/recording.py

# sshd with its dependencies, for tests with other hosts. The packages are unpacked and not installed, because an installed sshd
# would listen on the network. Without it these tests are skipped.
$(OUTPUT)/tests/openssh: | $(OUTPUT)/tests
	$(Q)rm -rf $@.new && mkdir $@.new && cd $@.new && apt-get -qq download $$(apt-get -s install --no-install-recommends openssh-server | sed -n 's/^Inst \([^ ]*\).*/\1/p') && for deb in *.deb; do dpkg-deb -x "$$deb" .; done && mv $(abspath $@.new) $(abspath $@)

$(OUTPUT)/tests/bare_uring: BENCH_LIBS := -luring
$(OUTPUT)/tests/bare $(OUTPUT)/tests/bare_uring $(OUTPUT)/tests/pingpong: $(OUTPUT)/tests/%: tests/bench/%.c | $(OUTPUT)/tests
	$(Q)$(CC) -O2 -Wall -Wextra -Werror -pthread -o $@ $< $(BENCH_LIBS)

$(OUTPUT)/tests/sends $(OUTPUT)/tests/crowd $(OUTPUT)/tests/moves $(OUTPUT)/tests/pipes $(OUTPUT)/tests/faults $(OUTPUT)/tests/acks $(OUTPUT)/tests/copies $(OUTPUT)/tests/encrypts $(OUTPUT)/tests/threads: $(OUTPUT)/tests/%: tests/live/%.c | $(OUTPUT)/tests
	$(Q)$(CC) -O2 -Wall -Wextra -Werror -pthread -o $@ $< -ldl $(LIVE_LIBS)

$(OUTPUT)/tests/acks: LIVE_LIBS := -lbpf
$(OUTPUT)/tests/moves: tests/live/sockmap.h
$(OUTPUT)/tests/copies $(OUTPUT)/tests/copies-static $(OUTPUT)/tests/encrypts $(OUTPUT)/tests/threads: tests/live/turns.h
$(OUTPUT)/tests/sends $(OUTPUT)/tests/pipes $(OUTPUT)/tests/faults: tests/live/ring.h
$(OUTPUT)/tests/moves $(OUTPUT)/tests/sends $(OUTPUT)/tests/pipes $(OUTPUT)/tests/faults $(OUTPUT)/tests/cabled: tests/live/checked.h

$(OUTPUT)/tests/cabled: tests/kernels/cabled.c | $(OUTPUT)/tests
	$(Q)$(CC) -O2 -Wall -Wextra -Werror -Itests/live -o $@ $<

# Built without a C library, because compilers for x86-64 often have no 32-bit C library.
$(OUTPUT)/tests/narrow-32 $(OUTPUT)/tests/narrow-64: $(OUTPUT)/tests/narrow-%: tests/live/narrow.c | $(OUTPUT)/tests
	$(Q)$(CC) -m$* -O1 -Wall -Wextra -Werror -ffreestanding -nostdlib -static -fno-pie -no-pie -fno-stack-protector -mno-red-zone \
		-mgeneral-regs-only -o $@ $<

# The collector, built with the thread sanitizer.
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

bench: deps-test all .venv/.ready-test .venv/.ready-report $(OUTPUT)/tests/bare $(OUTPUT)/tests/pingpong $(if $(filter yes,$(URING)),$(OUTPUT)/tests/bare_uring) ## Compare speed with iperf3, a bare loop, perf and bpftrace: BENCH=traffic (root)
	$(Q)$(PYTHON) -P -B tests/bench/bench.py $(BENCH)

check-soak: deps-test all .venv/.ready-test .venv/.ready-serve ## Watch nginx for two hours with --serve and --live, and see whether memory, files or BPF maps grow: MINUTES=10 (root)
	$(Q)tools/deps.sh programs
	$(Q)PYTHONPATH=tests/bench $(PYTHON) -P -B tests/bench/soak.py $(MINUTES)

crosscheck: trusted deps-test all ## Measure the same traffic with copyscope, bpftrace, perf, libbpf-tools and bcc: IMPL=one_copy CROSSCHECK_ARGS="--size 4K" (root)
	$(Q)$(PYTHON) -P -B tests/crosscheck/crosscheck.py --impl $(IMPL) $(CROSSCHECK_ARGS)

clean: ## Remove build outputs (not results/)
	$(Q)rm -rf $(OUTPUT) .venv

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'
