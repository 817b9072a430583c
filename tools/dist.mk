# What people install (tools/dist.py), of programs with all of their libraries in them. Included by the root Makefile.

DIST := $(OUTPUT)/dist
THIS := $(shell uname -m)
# For this machine; on x86-64, where its compiler is (tools/deps.sh run kernels), for arm64, too.
MACHINES ?= $(THIS) $(if $(filter x86_64,$(THIS)),$(if $(shell command -v aarch64-linux-gnu-gcc),aarch64))
CROSS_LIBRARIES := libbpf-dev libelf-dev zlib1g-dev libjansson-dev liburing-dev

dist: ## A wheel, a tarball and a Debian package that need no compiler, in .output/dist: MACHINES="x86_64 aarch64" (network)
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

# Symbols, and a name that depends on where it was built, are left out.
without_symbols = mkdir -p $(DIST).d/$(1)/programs/$(3) && for program in $(2); do $(if $(filter $(THIS),$(1)),,$(1)-linux-gnu-)strip --strip-all --remove-section=.note.gnu.build-id \
	-o $(DIST).d/$(1)/programs/$(3)$${program\#\#*/} $$program || exit; done

dist-$(THIS): $(OUTPUT)/static/collector $(GUEST_DIR)/traffic

ifeq ($(THIS),x86_64)
# What is simulated is an x86-64: its programs, and a plugin for each number of QEMU's interface (simulate/qemu.py).
dist-x86_64: $(addprefix $(GUEST_DIR)/,init $(patsubst %,simulator-%.so,1 2 3 4 5 6 7))
dist-aarch64: dist-cross
# As a guest's (tests/kernels/cross/cross.mk): Debian's static libraries for it, and a kernel of its kind for vmlinux.h.
.PHONY: dist-cross
dist-cross:
	$(Q)kernel=$$(tests/kernels/fetch.sh trixie arm64) && libraries=$$(tests/kernels/fetch.sh bookworm arm64 $(CROSS_LIBRARIES)) && \
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(MAKE) --no-print-directory -f tests/kernels/cross/cross.mk ARCH=arm64 \
		OUTPUT=$(DIST).d/aarch64/build KERNEL=$$kernel SYSROOT=$$libraries URING=yes programs
endif
