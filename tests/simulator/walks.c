// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walks over memory with known numbers of cache misses. As init of a simulated machine it does all walks, each as a measurement.
 * `walks CASE ROUNDS` does one walk this many times, for cachegrind.
 */
#include <emmintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/guest/channel.h"
#include "../../src/traffic/marker.h"

#define PAGE 4096
#define HUGE (2u << 20)
#define ROOM (4u << 20)

static char from[ROOM] __attribute__((aligned(PAGE))), to[ROOM] __attribute__((aligned(PAGE)));

static void read_words(size_t bytes)
{
	for (size_t at = 0; at < bytes; at += sizeof(uint64_t))
		(void)*(volatile uint64_t *)(from + at);
}

static void read_every(const char *begin, size_t bytes, size_t stride)
{
	for (size_t at = 0; at < bytes; at += stride)
		(void)*(volatile uint64_t *)(begin + at);
}

/* Read every second cache line. */
static void read_lines(size_t bytes)
{
	read_every(from, bytes, 128);
}

static void read_pages(size_t bytes)
{
	read_every(from, bytes, PAGE);
}

/* Read a separate mapping, whose page size was chosen by madvise(). */
static void read_mapped(size_t bytes, int advice)
{
	static char *mapped[2];
	char **begin = &mapped[advice == MADV_HUGEPAGE];

	if (!*begin) {
		*begin = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		*begin += -(uintptr_t)*begin % HUGE;
		madvise(*begin, bytes, advice);
		memset(*begin, 1, bytes);
	}
	read_every(*begin, bytes, PAGE);
}

static void read_small_pages(size_t bytes)
{
	read_mapped(bytes, MADV_NOHUGEPAGE);
}

static void read_huge_pages(size_t bytes)
{
	read_mapped(bytes, MADV_HUGEPAGE);
}

static void copy_sse(size_t bytes)
{
	for (size_t at = 0; at < bytes; at += sizeof(__m128i))
		_mm_store_si128((__m128i *)(to + at), _mm_load_si128((const __m128i *)(from + at)));
}

static void copy_string(size_t bytes)
{
	void *source = from, *target = to;

	__asm__ volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(bytes) : : "memory");
}

/* Touch new pages, which the kernel must zero first. */
static void touch_pages(size_t bytes)
{
	char *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t at = 0; fresh != MAP_FAILED && at < bytes; at += PAGE)
		*(volatile char *)(fresh + at) = 1;
}

/*
 * Unmap pages in each round. The kernel invalidates up to 33 pages one by one, and more by dropping all translations
 * (tlb_single_page_flush_ceiling in arch/x86/mm/tlb.c). Another 16 pages stay mapped.
 */
static void drop_pages(size_t bytes)
{
	static char *mapped;

	if (!mapped)
		mapped = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(mapped, ROOM, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < bytes; at += PAGE)
		mapped[at] = 1;
	madvise(mapped, bytes, MADV_DONTNEED);
	for (size_t at = ROOM - 16 * PAGE; at < ROOM; at += PAGE)
		mapped[at] = 1;
}

static const struct {
	void (*walk)(size_t bytes);
	size_t bytes;
	unsigned int rounds;
} cases[] = {
	{ read_words, 8u << 10, 4 }, { read_words, 128u << 10, 4 }, { read_words, 4u << 20, 2 },
	{ read_lines, 256u << 10, 4 }, { read_pages, 64u << 10, 4 },
	{ copy_sse, 8u << 10, 4 }, { copy_sse, 1u << 20, 4 },
	{ copy_string, 8u << 10, 4 }, { copy_string, 1u << 20, 4 }, { copy_string, 4u << 20, 2 },
	{ touch_pages, 4u << 20, 1 }, { read_small_pages, 4u << 20, 4 }, { read_huge_pages, 4u << 20, 4 },
	{ drop_pages, 16 * PAGE, 10 }, { drop_pages, 64 * PAGE, 10 },
};

#define CASES (sizeof(cases) / sizeof(*cases))

static void run(size_t which, unsigned int rounds)
{
	/* Map the memory, and fill the caches as far as it fits. */
	memset(from, 1, cases[which].bytes);
	memset(to, 1, cases[which].bytes);
	cases[which].walk(cases[which].bytes);
	marker__execute(MARKER_WARM);
	marker__execute(MARKER_SENDER);
	cases[which].walk(cases[which].bytes);
	/* A system call lets the simulator identify the task. */
	getppid();
	marker__execute(MARKER_COUNT);
	for (unsigned int round = 0; round < rounds; round++)
		cases[which].walk(cases[which].bytes);
	marker__execute(MARKER_STOP);
}

int main(int argc, char **argv)
{
	size_t which = argc == 3 ? strtoul(argv[1], NULL, 10) : CASES;

	if (which < CASES) {
		run(which, strtoul(argv[2], NULL, 10));
		return 0;
	}
	if (getpid() != 1 || channel__open())
		return 2;
	for (which = 0; which < CASES; which++)
		run(which, cases[which].rounds);
	channel__say("end");
	channel__end();
}
