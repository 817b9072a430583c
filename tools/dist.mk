# Packages for installation (tools/dist.py), with statically linked programs. Included by the root Makefile.

DIST := $(OUTPUT)/dist
THIS := $(shell uname -m)
# Build for this machine. On x86-64 also build for arm64, if the cross compiler is installed (tools/deps.sh run kernels).
MACHINES ?= $(THIS) $(if $(filter x86_64,$(THIS)),$(if $(shell command -v aarch64-linux-gnu-gcc),aarch64))
CROSS_LIBRARIES := libbpf-dev libelf-dev zlib1g-dev libjansson-dev liburing-dev

dist: ## Build a wheel, a tarball and a Debian package that need no compiler, in .output/dist: MACHINES="x86_64 aarch64" (network)
	$(if $(filter aarch64,$(filter-out $(THIS),$(MACHINES))),$(if $(shell command -v aarch64-linux-gnu-gcc),,$(error dist: aarch64-linux-gnu-gcc is missing; install gcc-aarch64-linux-gnu (sudo tools/deps.sh kernels))))
	$(Q)rm -rf $(DIST)
	$(Q)$(AS_USER) $(MAKE) --no-print-directory .venv/.ready-dist $(MACHINES:%=dist-%)

.PHONY: dist-x86_64 dist-aarch64
dist-x86_64 dist-aarch64: dist-%: $(OUTPUT)/xdp_pass.bpf.o
	$(call say,DIST,$*)
	$(Q)rm -rf $(DIST).d/$*/programs && mkdir -p $(DIST).d/$*/programs
	$(Q)cp $< $(DIST).d/$*/programs
	$(Q)CLANG=$(CLANG) tools/built_of.sh $(DIST).d/$*/programs/built-of.json $*
	$(Q)$(call without_symbols,$*,$(filter %/collector %/traffic,$^) $(if $(filter $(THIS),$*),,$(addprefix $(DIST).d/$*/build/,collector traffic)),)
	$(Q)$(if $(filter x86_64,$*),$(call without_symbols,$*,$(filter $(GUEST_DIR)/%,$^),guest/))
	$(Q)$(PYTHON) -P -B tools/dist.py $* $(DIST)

# Strip symbols, and the build ID, which depends on the build directory.
without_symbols = mkdir -p $(DIST).d/$(1)/programs/$(3) && for program in $(2); do $(if $(filter $(THIS),$(1)),,$(1)-linux-gnu-)strip --strip-all --remove-section=.note.gnu.build-id \
	-o $(DIST).d/$(1)/programs/$(3)$${program\#\#*/} $$program || exit; done

dist-$(THIS): $(OUTPUT)/static/collector $(GUEST_DIR)/traffic

ifeq ($(THIS),x86_64)
# The simulated machine is an x86-64. It needs its own programs, and a plugin for each version of QEMU's plugin interface
# (simulate/qemu.py).
dist-x86_64: $(addprefix $(GUEST_DIR)/,init $(patsubst %,simulator-%.so,1 2 3 4 5 6 7))
dist-aarch64: dist-cross
# Built like a guest's programs (tests/kernels/cross/cross.mk), with Debian's static libraries for arm64 and vmlinux.h from an arm64
# kernel.
.PHONY: dist-cross
dist-cross:
	$(Q)kernel=$$(tests/kernels/fetch.sh trixie arm64) && libraries=$$(tests/kernels/fetch.sh bookworm arm64 $(CROSS_LIBRARIES)) && \
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(MAKE) --no-print-directory -f tests/kernels/cross/cross.mk ARCH=arm64 \
		OUTPUT=$(DIST).d/aarch64/build KERNEL=$$kernel SYSROOT=$$libraries URING=yes programs
endif
