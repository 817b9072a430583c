// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shared.h"

/*
 * QEMU's main thread hears a bell, and has interrupted the core a little later. The guest's clock stands still meanwhile. Where this
 * thread itself keeps the main thread out, as in an instruction that QEMU runs alone, a bell is heard after it.
 */
#define HEARD_TRIES 20000
#define HEARD_NS 1000
#define INTERRUPTED_NS 30000
/* Where it has not: so often so long, which keeps an interrupt close to what it is for. */
#define AWAITS 20
#define AWAIT_NS 200000

int shared__open(struct shared *shared, const char *path, const int bells[CORES_MAX])
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *memory;

	if (fd < 0)
		return -errno;
	memory = mmap(NULL, SIMPMU_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (memory == MAP_FAILED)
		return -errno;
	*shared = (struct shared){ .memory = memory };
	memcpy(shared->bells, bells, sizeof(shared->bells));
	shared->memory->magic = SIMPMU_MAGIC;
	return 0;
}

void shared__close(struct shared *shared)
{
	if (shared->memory)
		munmap(shared->memory, SIMPMU_BYTES);
	*shared = (struct shared){ 0 };
}

static void sleep_ns(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

void shared__ring(struct shared *shared, unsigned int core)
{
	struct pollfd bell = { .fd = shared->bells[core], .events = POLLIN };
	unsigned int tries = 0;

	shared->due = false;
	if (!bell.fd || write(bell.fd, &(uint64_t){ 1 }, sizeof(uint64_t)) < 0)
		return;
	while (poll(&bell, 1, 0) == 1 && ++tries < HEARD_TRIES)
		sleep_ns(HEARD_NS);
	shared->memory->cpus[core].late += tries == HEARD_TRIES;
	sleep_ns(INTERRUPTED_NS);
	shared->awaits[core] = AWAITS;
}

void shared__await(struct shared *shared, unsigned int core, bool interrupted)
{
	if (!shared->awaits[core])
		return;
	shared->awaits[core] = interrupted ? 0 : shared->awaits[core] - 1;
	if (!interrupted)
		sleep_ns(AWAIT_NS);
}

bool shared__any_active(const struct shared *shared, unsigned int cores)
{
	const struct simpmu_memory *memory = shared->memory;
	unsigned long long active = !memory || memory->always;

	for (unsigned int core = 0; core < cores && !active; core++)
		active = memory->cpus[core].active;
	return active;
}
