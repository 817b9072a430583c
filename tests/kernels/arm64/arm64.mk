# The tree that the arm64 guest runs on: static programs, busybox, one script. See matrix.py, which says where the kernel
# (KERNEL) and Debian's static libraries (SYSROOT) are; the programs are built by the same rules as the host's.

OUTPUT := .output/arm64
TREE := $(OUTPUT)/tree
HERE := tests/kernels/arm64
LIBRARIES := $(abspath $(SYSROOT))/usr/lib/aarch64-linux-gnu
CROSS := aarch64-linux-gnu-
# The headers are the host's own (libbpf's and jansson's are the same for all), the libraries are arm64's.
CROSS_CFLAGS := -O2 -g -std=gnu11 -Wall -Wextra -Werror -isystem $(abspath $(SYSROOT))/usr/include
PROGRAMS := $(OUTPUT)/collector $(OUTPUT)/traffic

.PHONY: tree programs
tree: programs $(OUTPUT)/thread_counter
	@mkdir -p $(TREE)/bin $(TREE)/sbin $(TREE)/usr/bin $(TREE)/lib/modules $(TREE)/guest
	@mkdir -p $(addprefix $(TREE)/,dev proc sys run tmp root)
	@install -m 755 $(SYSROOT)/bin/busybox $(TREE)/bin/busybox
	@ln -sf busybox $(TREE)/bin/sh
	@ln -sf ../bin/busybox $(TREE)/sbin/ip
	@ln -sf ../../bin/busybox $(TREE)/usr/bin/env
	@install -m 755 $(PROGRAMS) $(OUTPUT)/thread_counter $(HERE)/inside $(TREE)/guest

programs: $(OUTPUT)/vmlinux.btf
	@$(MAKE) --no-print-directory OUTPUT=$(OUTPUT) BPF_ARCH=arm64 VMLINUX_BTF=$(OUTPUT)/vmlinux.btf \
		CC=$(CROSS)gcc CFLAGS="$(CROSS_CFLAGS)" LDFLAGS="-static -L$(LIBRARIES)" \
		COLLECTOR_LIBS="-lbpf -lelf -lz -ljansson -pthread" $(PROGRAMS)

$(OUTPUT)/vmlinux.btf: $(KERNEL)/vmlinuz $(HERE)/btf.py
	@mkdir -p $(@D)
	@rm -f $(OUTPUT)/vmlinux.h
	@python3 $(HERE)/btf.py $< $@

$(OUTPUT)/thread_counter: $(HERE)/thread_counter.c
	@mkdir -p $(@D)
	@$(CROSS)gcc $(CROSS_CFLAGS) -static $< -o $@
