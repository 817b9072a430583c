# The traffic room: .output/traffic, and for the tests .output/tests/unit and .output/tests/unit-threads.
# Included by the root Makefile; `make -f src/traffic/traffic.mk` works too.

OUTPUT ?= .output
# Flags for a special build, such as: make OUTPUT=/tmp/tsan SANITIZE=-fsanitize=thread traffic
SANITIZE ?=
UNIT_SANITIZE ?= -fsanitize=address,undefined -fno-sanitize-recover=all
# The thread sanitizer needs a program of its own, because it does not work together with the address sanitizer.
THREADS_SANITIZE := -fsanitize=thread

CFLAGS ?= -O2 -g -std=gnu11 -Wall -Wextra -Werror
TRAFFIC_CFLAGS := $(CFLAGS) -D_GNU_SOURCE -pthread -Isrc/traffic -Isrc/collector \
	$(shell pkg-config --cflags jansson)
TRAFFIC_LIBS := $(shell pkg-config --libs jansson) -lm -pthread

# liburing is optional. Without it the strategies and readings of io_uring are absent, and their names are refused with the
# reason. URING= builds without it.
ifeq ($(origin URING),undefined)
URING := $(shell pkg-config --exists 'liburing >= 2.3' && echo yes)
endif
TRAFFIC_CORE := $(sort $(wildcard src/traffic/*.c))
TRAFFIC_STRATEGIES := $(sort $(wildcard src/traffic/strategies/*.c))
TRAFFIC_READINGS := $(sort $(wildcard src/traffic/readings/*.c))
ABSENT_STRATEGIES :=
ABSENT_READINGS :=
ifeq ($(URING),yes)
TRAFFIC_LIBS += -luring
else
ABSENT_STRATEGIES := $(sort $(wildcard src/traffic/strategies/uring_*.c))
ABSENT_READINGS := src/traffic/readings/multishot.c
TRAFFIC_CORE := $(filter-out src/traffic/uring.c,$(TRAFFIC_CORE))
TRAFFIC_READINGS := $(filter-out $(ABSENT_READINGS),$(TRAFFIC_READINGS))
TRAFFIC_STRATEGIES := $(filter-out $(ABSENT_STRATEGIES),$(TRAFFIC_STRATEGIES))
endif
TRAFFIC_CORE += $(TRAFFIC_READINGS)
UNIT_TESTS := $(sort $(wildcard tests/c/*.c))

# Object files of the sources $(1) in the directory $(2)
traffic_objects = $(patsubst %.c,$(2)/%.o,$(1))

TRAFFIC_DIR := $(OUTPUT)/obj/traffic
UNIT_DIR := $(OUTPUT)/obj/unit
THREADS_DIR := $(OUTPUT)/obj/unit-threads
TRAFFIC_OBJECTS := $(call traffic_objects,$(TRAFFIC_CORE) $(TRAFFIC_STRATEGIES),$(TRAFFIC_DIR))
# Sources of the simulator that do not need QEMU
SIMULATOR_PURE := $(filter-out src/simulator/plugin.c src/simulator/vcpu.c,$(sort $(wildcard src/simulator/*.c)))
UNIT_SOURCES := $(filter-out src/traffic/main.c,$(TRAFFIC_CORE)) $(TRAFFIC_STRATEGIES) $(UNIT_TESTS) $(SIMULATOR_PURE) \
	$(addprefix src/collector/,attach/call_decode.c attach/prototype.c functions/counter_trial.c functions/cpu_event_open.c \
	kernel/core_pmus.c kernel/ksyms.c kernel/pmu.c kernel/seal.c lines.c report/maps.c report/names.c sampling/events.c sampling/sampler.c sampling/trial.c \
	instruments/resting_thread.c report/watched.c)
UNIT_OBJECTS := $(call traffic_objects,$(UNIT_SOURCES),$(UNIT_DIR))
THREADS_OBJECTS := $(call traffic_objects,$(UNIT_SOURCES),$(THREADS_DIR))

.DELETE_ON_ERROR:
.PHONY: traffic traffic-tests FORCE
traffic: $(OUTPUT)/traffic
traffic-tests: $(OUTPUT)/tests/unit $(OUTPUT)/tests/unit-threads

# Write a list with STRATEGY(name) or READING(name) for each file, and ABSENT(name) for each file that is not built. The list is
# rewritten only if it changes.
names = $(foreach name,$(sort $(basename $(notdir $(2) $(3)))),$(if $(filter $(name),$(basename $(notdir $(3)))),ABSENT,$(1))($(name)))
define name_list
$(1): FORCE
	@mkdir -p $$(@D)
	@[ "$$$$(cat $$@ 2>/dev/null)" = '$(call names,$(2),$(3),$(4))' ] || echo '$(call names,$(2),$(3),$(4))' > $$@
endef
define strategy_list
$(call name_list,$(1)/strategies.inc,STRATEGY,$(TRAFFIC_STRATEGIES),$(ABSENT_STRATEGIES))
$(call name_list,$(1)/readings.inc,READING,$(TRAFFIC_READINGS),$(ABSENT_READINGS))
endef
$(foreach directory,$(TRAFFIC_DIR) $(UNIT_DIR) $(THREADS_DIR),$(eval $(call strategy_list,$(directory))))

define traffic_compile
$(1)/%.o: %.c | $(1)/strategies.inc $(1)/readings.inc
	@mkdir -p $$(@D)
	$$(call say,CC,$$@)
	$$(Q)$(CC) $(TRAFFIC_CFLAGS) $(2) -I$(1) -MMD -MP -c -o $$@ $$<
$(1)/src/traffic/registry.o: $(1)/strategies.inc
$(1)/src/traffic/reading.o: $(1)/readings.inc
endef
$(eval $(call traffic_compile,$(TRAFFIC_DIR),$$(SANITIZE)))
$(eval $(call traffic_compile,$(UNIT_DIR),$$(UNIT_SANITIZE) -Ibpf -Itests/c/stand_ins))
$(eval $(call traffic_compile,$(THREADS_DIR),$$(THREADS_SANITIZE) -Ibpf -Itests/c/stand_ins))

$(OUTPUT)/traffic: $(TRAFFIC_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ $(TRAFFIC_LIBS)

$(OUTPUT)/tests/unit: $(UNIT_OBJECTS)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(UNIT_SANITIZE) -o $@ $^ $(TRAFFIC_LIBS) -lbpf

$(OUTPUT)/tests/unit-threads: $(THREADS_OBJECTS)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(THREADS_SANITIZE) -o $@ $^ $(TRAFFIC_LIBS) -lbpf

-include $(TRAFFIC_OBJECTS:.o=.d) $(UNIT_OBJECTS:.o=.d) $(THREADS_OBJECTS:.o=.d)
