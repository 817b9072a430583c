# The collector and its BPF programs: one unit per instrument, linked into two objects. If an object has CO-RE relocations
# or typed kernel symbols, libbpf needs the kernel's BTF for all of it; the sampler has neither and is the second object.

BPF_ARCH := $(patsubst x86_64,x86,$(patsubst aarch64,arm64,$(shell uname -m)))
HOOK_UNITS := target owner bytes calls functions zerocopy watch volume copied_out splice file_reads uring shape arrival programs
SAMPLER_UNITS := target sampler
# Objects contain the names of their sources. Make these independent of the tree's location.
SAME_PATHS := -ffile-prefix-map=$(CURDIR)=.
# libbpf's BPF_CORE_READ() of a const member declares an uninitialised constant. clang 21 warns about that; older
# versions do not know the option.
BPF_FLAGS := -g -O2 -mcpu=v3 -target bpf -Wall -Wextra -Werror -Wno-unused-parameter \
	-Wno-unknown-warning-option -Wno-default-const-init-var-unsafe -D__TARGET_ARCH_$(BPF_ARCH) $(SAME_PATHS)

COLLECTOR_OBJECTS := $(patsubst src/collector/%.c,$(OUTPUT)/collector.d/%.o,$(wildcard src/collector/*.c src/collector/*/*.c))
COLLECTOR_LIBS := -lbpf -ljansson -lm -pthread

VMLINUX_BTF ?= /sys/kernel/btf/vmlinux
VMLINUX_H ?= $(OUTPUT)/vmlinux.h

$(OUTPUT)/vmlinux.h: | $(OUTPUT)
	@test -r $(VMLINUX_BTF) || { echo "$(VMLINUX_BTF): missing, because this kernel has no BTF; build with VMLINUX_H=FILE," \
		"a vmlinux.h made on a kernel of the same architecture" >&2; exit 1; }
	$(call say,BTF,$@)
	$(Q)bpftool btf dump file $(VMLINUX_BTF) format c > $@

$(OUTPUT)/bpf/%.bpf.o: bpf/%.bpf.c $(VMLINUX_H) src/collector/collector.mk | $(OUTPUT)/bpf
	$(call say,BPF,$@)
	$(Q)$(CLANG) $(BPF_FLAGS) -I$(dir $(VMLINUX_H)) -Ibpf -MMD -MP -c $< -o $@

$(OUTPUT)/copyscope.bpf.o: $(HOOK_UNITS:%=$(OUTPUT)/bpf/%.bpf.o)
$(OUTPUT)/sampling.bpf.o: $(SAMPLER_UNITS:%=$(OUTPUT)/bpf/%.bpf.o)
$(OUTPUT)/copyscope.bpf.o $(OUTPUT)/sampling.bpf.o:
	$(call say,LINK,$@)
	$(Q)bpftool gen object $@ $^

$(OUTPUT)/%.skel.h: $(OUTPUT)/%.bpf.o
	$(call say,SKEL,$@)
	$(Q)bpftool gen skeleton $< name $* > $@

# UAPI headers only, because it must also attach on kernels without BTF.
$(OUTPUT)/xdp_pass.bpf.o: bpf/xdp_pass.bpf.c src/collector/collector.mk | $(OUTPUT)
	$(call say,BPF,$@)
	$(Q)$(CLANG) -g -O2 -target bpf -Wall -Werror $(SAME_PATHS) $(MULTIARCH_INCLUDE) -c $< -o $@

$(OUTPUT)/collector.d/%.o: src/collector/%.c $(OUTPUT)/copyscope.skel.h $(OUTPUT)/sampling.skel.h
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CFLAGS) -Isrc/collector -I$(OUTPUT) -Ibpf -MMD -MP -c $< -o $@

$(OUTPUT)/collector: $(COLLECTOR_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $^ $(COLLECTOR_LIBS) -o $@

# Static collector, for hosts without the libraries.
$(OUTPUT)/static/collector: $(COLLECTOR_OBJECTS)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -static -Wl,--wrap=bpf_btf_get_next_id $^ $(COLLECTOR_LIBS) $(shell pkg-config --static --libs libelf) -o $@

$(OUTPUT)/bpf:
	$(Q)mkdir -p $@

-include $(wildcard $(OUTPUT)/bpf/*.d $(OUTPUT)/collector.d/*.d $(OUTPUT)/collector.d/*/*.d)
