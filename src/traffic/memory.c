// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "memory.h"

#define HUGE_PAGE_DEFAULT_BYTES (2ul << 20)

/* Return the number N of the line `key: N [kB]` of a /proc file, or -1 if there is no such line. */
static int64_t read_key(const char *path, const char *key, int base)
{
	FILE *file = fopen(path, "re");
	int64_t value = -1;
	char line[256];
	size_t length = strlen(key);

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, key, length) && line[length] == ':') {
			value = strtoimax(line + length + 1, NULL, base);
			break;
		}
	fclose(file);
	return value;
}

uint64_t memory__meminfo_bytes(const char *key)
{
	int64_t kib = read_key("/proc/meminfo", key, 10);

	return kib < 0 ? 0 : (uint64_t)kib << 10;
}

size_t memory__huge_page_bytes(void)
{
	uint64_t bytes = memory__meminfo_bytes("Hugepagesize");

	return bytes ? bytes : HUGE_PAGE_DEFAULT_BYTES;
}

uint64_t memory__huge_pages_free(void)
{
	int64_t pages = read_key("/proc/meminfo", "HugePages_Free", 10);

	return pages < 0 ? 0 : pages;
}

bool memory__thp_never(void)
{
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char line[128] = "";
	bool never;

	if (!file)
		return true;
	never = fgets(line, sizeof(line), file) && strstr(line, "[never]");
	fclose(file);
	return never;
}

int64_t memory__huge_bytes_in_use(void)
{
	static const char *const keys[] = { "AnonHugePages", "Private_Hugetlb", "Shared_Hugetlb" };
	int64_t sum = 0;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		int64_t kib = read_key("/proc/self/smaps_rollup", keys[i], 10);

		if (kib < 0)
			return -1;
		sum += kib << 10;
	}
	return sum;
}

void *memory__map(size_t bytes)
{
	void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return start == MAP_FAILED ? NULL : start;
}

void *memory__map_huge(size_t bytes, bool reserved)
{
	size_t huge = memory__huge_page_bytes();
	char *start, *aligned;

	if (reserved) {
		start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
		return start == MAP_FAILED ? NULL : start;
	}
	/* Transparent huge pages need an aligned range: map one page more, then unmap the excess at both ends. */
	start = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (start == MAP_FAILED)
		return NULL;
	aligned = (char *)(((uintptr_t)start + huge - 1) / huge * huge);
	if (aligned > start)
		munmap(start, aligned - start);
	munmap(aligned + bytes, start + huge - aligned);
	if (madvise(aligned, bytes, MADV_HUGEPAGE)) {
		munmap(aligned, bytes);
		return NULL;
	}
	return aligned;
}

uint64_t memlock__limit_bytes(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return MEMLOCK_UNLIMITED;
	return limit.rlim_cur;
}

/* Return true in the initial user namespace: capable() of the kernel ignores capabilities in all other namespaces. */
static bool in_initial_user_namespace(void)
{
	FILE *file = fopen("/proc/self/uid_map", "re");
	unsigned long inside = 1, outside = 1, count = 0;
	bool initial;

	if (!file)
		return true;	/* the kernel has no user namespaces */
	initial = fscanf(file, "%lu %lu %lu", &inside, &outside, &count) == 3 && !inside && !outside &&
		  count == UINT32_MAX;
	fclose(file);
	return initial;
}

bool memlock__enforced(void)
{
	int64_t effective = read_key("/proc/self/status", "CapEff", 16);

	if (memlock__limit_bytes() == MEMLOCK_UNLIMITED)
		return false;
	return effective < 0 || !(effective >> CAP_IPC_LOCK & 1) || !in_initial_user_namespace();
}

uint64_t memlock__send_bytes(size_t size_bytes)
{
	long page = sysconf(_SC_PAGESIZE);

	return (size_bytes / page + 2) * page;
}

int memlock__check(size_t size_bytes, struct failure *failure)
{
	uint64_t needed = memlock__send_bytes(size_bytes);

	if (!memlock__enforced() || needed <= memlock__limit_bytes())
		return 0;
	return failure__set(failure, -ENOBUFS,
		"memlock: a zero-copy send of %zu bytes needs %zu + 2 pages = %llu KiB of locked memory, the "
		"limit is %llu KiB; raise it (ulimit -l) or lower --size",
		size_bytes, size_bytes / sysconf(_SC_PAGESIZE), (unsigned long long)needed >> 10,
		(unsigned long long)memlock__limit_bytes() >> 10);
}
