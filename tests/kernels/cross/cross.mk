# Root file system of a guest of another architecture: static programs, busybox, one script. matrix.py passes the
# architecture (ARCH) and the paths of its kernel (KERNEL) and of Debian's static libraries (SYSROOT). The programs are
# built by the same rules as on the host.

OUTPUT := .output/$(ARCH)
TREE := $(OUTPUT)/tree
HERE := tests/kernels/cross
TRIPLE := $(if $(filter arm64,$(ARCH)),aarch64,$(ARCH))-linux-gnu
BPF_ARCH := $(ARCH)
LIBRARIES := $(abspath $(SYSROOT))/usr/lib/$(TRIPLE)
CC := $(TRIPLE)-gcc
# Headers of libbpf and jansson come from SYSROOT, and so do the libraries. The C
# library belongs to the cross compiler.
CROSS_CFLAGS := -O2 -g -std=gnu11 -Wall -Wextra -Werror -isystem $(abspath $(SYSROOT))/usr/include
LDFLAGS := -static -Wl,--wrap=bpf_btf_get_next_id -L$(LIBRARIES)
COLLECTOR_LIBS := -lbpf -lelf -lz -ljansson -lm -pthread
# Guests do not test io_uring, so build without it. Released programs are built with it (tools/dist.mk).
URING := no
PROGRAMS := $(OUTPUT)/collector $(OUTPUT)/traffic

.PHONY: tree programs
tree: programs $(OUTPUT)/thread_counter
	@mkdir -p $(TREE)/bin $(TREE)/sbin $(TREE)/usr/bin $(TREE)/lib/modules $(TREE)/guest
	@mkdir -p $(addprefix $(TREE)/,dev proc sys run tmp root)
	@install -m 755 $(firstword $(wildcard $(SYSROOT)/bin/busybox $(SYSROOT)/usr/bin/busybox)) $(TREE)/bin/busybox
	@ln -sf busybox $(TREE)/bin/sh
	@ln -sf ../bin/busybox $(TREE)/sbin/ip
	@ln -sf ../../bin/busybox $(TREE)/usr/bin/env
	@install -m 755 $(PROGRAMS) $(OUTPUT)/thread_counter $(HERE)/inside $(TREE)/guest

programs: $(OUTPUT)/vmlinux.btf
	@$(MAKE) --no-print-directory OUTPUT=$(OUTPUT) BPF_ARCH=$(BPF_ARCH) VMLINUX_BTF=$(OUTPUT)/vmlinux.btf \
		CC=$(CC) URING=$(URING) CFLAGS="$(CROSS_CFLAGS)" LDFLAGS="$(LDFLAGS)" \
		COLLECTOR_LIBS="$(COLLECTOR_LIBS)" $(PROGRAMS)

$(OUTPUT)/vmlinux.btf: $(KERNEL)/vmlinuz $(HERE)/btf.py
	@mkdir -p $(@D)
	@rm -f $(OUTPUT)/vmlinux.h
	@python3 $(HERE)/btf.py $< $@

$(OUTPUT)/thread_counter: $(HERE)/thread_counter.c
	@mkdir -p $(@D)
	@$(CC) $(CROSS_CFLAGS) -static $< -o $@
