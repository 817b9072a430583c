# The guest room: programs of a simulated machine, and the model of its caches. Included by the root Makefile. Built at
# the first --simulate, because it needs static libraries and the plugin version depends on the installed QEMU.

GUEST_DIR := $(OUTPUT)/guest
GUEST_SOURCES := $(sort $(wildcard src/guest/*.c))
SIMULATOR_SOURCES := $(sort $(wildcard src/simulator/*.c))

$(GUEST_DIR):
	@mkdir -p $@

# The guest has no libraries: link the same objects, which contain the same instructions, statically. The linker warns
# about getaddrinfo(), which does not matter: traffic resolves only numeric addresses.
$(GUEST_DIR)/traffic: $(TRAFFIC_OBJECTS) | $(GUEST_DIR)
	$(call say,LINK,$@)
	$(Q)$(CC) -static -o $@ $^ $(TRAFFIC_LIBS) 2>$@.said || { cat $@.said >&2; exit 1; }

$(GUEST_DIR)/init: $(GUEST_SOURCES) $(wildcard src/guest/*.h) src/traffic/marker.h | $(GUEST_DIR)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -D_GNU_SOURCE -static -o $@ $(GUEST_SOURCES)

# One plugin for each version of QEMU's plugin interface.
$(GUEST_DIR)/simulator-%.so: $(SIMULATOR_SOURCES) $(wildcard src/simulator/*.h) | $(GUEST_DIR)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -fPIC -shared -D_GNU_SOURCE -DQEMU_API=$* -o $@ $(SIMULATOR_SOURCES)
