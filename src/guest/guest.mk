# The guest room: what runs in a simulated machine, and the model of its caches. Included by the root Makefile; built
# at the first --simulate, not before: it needs static libraries, and which plugin depends on the QEMU that is there.

GUEST_DIR := $(OUTPUT)/guest
GUEST_SOURCES := $(sort $(wildcard src/guest/*.c))
SIMULATOR_SOURCES := $(sort $(wildcard src/simulator/*.c))

$(GUEST_DIR):
	@mkdir -p $@

# The same objects, so the same instructions; the guest has no libraries. traffic asks for addresses in digits only:
# the linker's warning about getaddrinfo() is not about it.
$(GUEST_DIR)/traffic: $(TRAFFIC_OBJECTS) | $(GUEST_DIR)
	$(call say,LINK,$@)
	$(Q)$(CC) -static -o $@ $^ $(TRAFFIC_LIBS) 2>$@.said || { cat $@.said >&2; exit 1; }

$(GUEST_DIR)/init: $(GUEST_SOURCES) $(wildcard src/guest/*.h) src/traffic/marker.h | $(GUEST_DIR)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -D_GNU_SOURCE -static -o $@ $(GUEST_SOURCES)

# One for each number of QEMU's plugin interface.
$(GUEST_DIR)/simulator-%.so: $(SIMULATOR_SOURCES) $(wildcard src/simulator/*.h) | $(GUEST_DIR)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -fPIC -shared -D_GNU_SOURCE -DQEMU_API=$* -o $@ $(SIMULATOR_SOURCES)
