// SPDX-License-Identifier: GPL-2.0-only
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
 * A bell is an eventfd that makes QEMU interrupt a core. QEMU's main thread reads the bell and interrupts the core
 * shortly afterwards. The guest's clock stands still meanwhile. If this thread keeps the main thread from running, as
 * during an instruction that QEMU executes exclusively, the bell is read afterwards.
 */
#define BELL_READ_TRIES 20000
#define BELL_READ_NS 1000
#define INTERRUPT_DELAY_NS 30000
/*
 * If the interrupt has not arrived, wait up to AWAITS times, AWAIT_NS each time, so that it arrives close to its cause.
 */
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
	while (poll(&bell, 1, 0) == 1 && ++tries < BELL_READ_TRIES)
		sleep_ns(BELL_READ_NS);
	shared->memory->cpus[core].late += tries == BELL_READ_TRIES;
	sleep_ns(INTERRUPT_DELAY_NS);
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
