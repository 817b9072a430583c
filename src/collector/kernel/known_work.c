// SPDX-License-Identifier: GPL-2.0-only
#include "known_work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE_BYTES 64
/* Reads in random order use one line in four: a prefetcher of neighbouring lines then brings no line that is read. */
#define NODE_BYTES 256
/* Larger than an L1D cache and smaller than an L2 cache. */
#define NEAR_BYTES (256UL << 10)
#define NEAR_PASSES 64
#define FAR_MIN_BYTES (32UL << 20)
#define FAR_MAX_BYTES (512UL << 20)
#define BUFFER_BYTES (16UL << 20)
/* The chain of dependent additions takes one cycle an addition; subtraction and jump run beside it. */
#define LOOP_ROUNDS 10000
#define LOOP_CHAIN 98
#define LOOP_INSTRUCTIONS (LOOP_CHAIN + 2)

struct node {
	struct node *next;
	char unused[NODE_BYTES - sizeof(struct node *)];
};

/* near, far: nodes linked in random order; from, to: buffers of copies */
struct known_area {
	struct node *near, *far;
	size_t far_bytes;
	char *from, *to;
};

static void *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	/* With large pages, page walks cause few misses. */
	madvise(memory, bytes, MADV_HUGEPAGE);
	memset(memory, 1, bytes);
	return memory;
}

static uint64_t random_below(uint64_t limit)
{
	static uint64_t state = 88172645463325252ULL;

	/* xorshift64 (Marsaglia, 2003) */
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % limit;
}

/* Sattolo's algorithm: one cycle through all nodes. */
static void link_randomly(struct node *nodes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		nodes[i].next = &nodes[i];
	for (size_t i = count - 1; i > 0; i--) {
		struct node *other = &nodes[random_below(i)], *next = nodes[i].next;

		nodes[i].next = other->next;
		other->next = next;
	}
}

struct known_area *known_area__new(size_t llc_bytes)
{
	struct known_area *area = calloc(1, sizeof(*area));
	size_t far_bytes = llc_bytes > FAR_MAX_BYTES / 2 ? FAR_MAX_BYTES : 2 * llc_bytes;

	if (!area)
		return NULL;
	area->far_bytes = far_bytes < FAR_MIN_BYTES ? FAR_MIN_BYTES : far_bytes;
	area->near = map(NEAR_BYTES);
	area->far = map(area->far_bytes);
	area->from = map(BUFFER_BYTES);
	area->to = map(BUFFER_BYTES);
	if (!area->near || !area->far || !area->from || !area->to)
		return NULL;
	link_randomly(area->near, NEAR_BYTES / NODE_BYTES);
	link_randomly(area->far, area->far_bytes / NODE_BYTES);
	return area;
}

static void chase(struct node *volatile *next, size_t count)
{
	while (count--)
		next = (struct node *volatile *)&(*next)->next;
}

static void chase_far(struct known_area *area, const struct known_work *work)
{
	(void)work;
	chase(&area->far->next, area->far_bytes / NODE_BYTES);
}

static void chase_near(struct known_area *area, const struct known_work *work)
{
	(void)work;
	chase(&area->near->next, NEAR_PASSES * (NEAR_BYTES / NODE_BYTES));
}

static void read_in_order(struct known_area *area, const struct known_work *work)
{
	for (size_t at = 0; at < work->bytes; at += LINE_BYTES)
		*(volatile char *)(area->from + at);
}

static void copy(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
	/* This instruction copies between programs and the kernel, too (arch/x86/lib/copy_user_64.S). */
	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) :: "memory");
#else
	memcpy(to, from, bytes);
	asm volatile("" ::: "memory");
#endif
}

static void copy_pieces(struct known_area *area, const struct known_work *work)
{
	/* Powers of two: an odd step reaches each piece once. */
	const size_t pieces = work->span_bytes / work->piece_bytes, step = pieces / 3 * 2 + 1;

	for (size_t i = 0; i < work->bytes / work->piece_bytes; i++) {
		size_t at = i * step % pieces * work->piece_bytes;

		copy(area->to + at, area->from + at, work->piece_bytes);
	}
}

static void compute(struct known_area *area, const struct known_work *work)
{
	uint64_t rounds = LOOP_ROUNDS, sum = 0, term = (uintptr_t)area;

	(void)work;
#if defined(__x86_64__)
	asm volatile("1: .rept %c[chain]\n\tadd %[term], %[sum]\n\t.endr\n\tsub $1, %[rounds]\n\tjnz 1b"
		     : [sum] "+r"(sum), [rounds] "+r"(rounds)
		     : [term] "r"(term), [chain] "i"(LOOP_CHAIN) : "cc");
#elif defined(__aarch64__)
	asm volatile("1: .rept %c[chain]\n\tadd %[sum], %[sum], %[term]\n\t.endr\n\tsubs %[rounds], %[rounds], #1\n\tb.ne 1b"
		     : [sum] "+r"(sum), [rounds] "+r"(rounds)
		     : [term] "r"(term), [chain] "i"(LOOP_CHAIN) : "cc");
#endif
}

#define COPY(copy_name, piece, span, total, cached) \
	{ .name = copy_name, .run = copy_pieces, .piece_bytes = piece, .span_bytes = span, .bytes = total, .in_l1d = cached, .in_llc = cached }

const struct known_work known_works[] = {
	{ .name = "loop", .run = compute, .computes = true },
	{ .name = "random reads", .run = chase_far },
	{ .name = "random reads, cached", .run = chase_near, .in_llc = true },
	{ .name = "reads in order", .run = read_in_order, .bytes = BUFFER_BYTES },
	COPY("copies of 1 KiB", 1 << 10, 4 << 20, 4 << 20, false),
	COPY("copies of 64 KiB", 64 << 10, 4 << 20, 4 << 20, false),
	COPY("copy of 16 MiB", BUFFER_BYTES, BUFFER_BYTES, BUFFER_BYTES, false),
	COPY("copies of 1 KiB, cached", 1 << 10, 1 << 10, 1 << 20, true),
};
const size_t known_work_count = sizeof(known_works) / sizeof(*known_works);

static void flush(const char *memory, size_t bytes, size_t step)
{
	for (size_t at = 0; at < bytes; at += step) {
#if defined(__x86_64__)
		__builtin_ia32_clflush(memory + at);
#elif defined(__aarch64__)
		asm volatile("dc civac, %0" :: "r"(memory + at) : "memory");
#endif
	}
	__sync_synchronize();
}

void known_work__prepare(const struct known_work *work, struct known_area *area)
{
	if (work->computes || work->in_llc) {
		work->run(area, work);
		return;
	}
	/* Simulated caches ignore instructions that flush lines: the chase evicts all other lines there. */
	chase_far(area, work);
	if (work->run == chase_far)
		flush((char *)area->far, area->far_bytes, NODE_BYTES);
	flush(area->from, work->bytes, LINE_BYTES);
	flush(area->to, work->bytes, LINE_BYTES);
}

uint64_t known_work__lines(const struct known_work *work, const struct known_area *area)
{
	if (work->run == chase_far)
		return area->far_bytes / NODE_BYTES;
	if (work->run == chase_near)
		return NEAR_PASSES * (NEAR_BYTES / NODE_BYTES);
	return work->bytes / LINE_BYTES;
}

int64_t known_work__expect(const struct known_work *work, const struct known_area *area, const char *event)
{
	if (!strcmp(event, "instructions"))
		return work->computes ? LOOP_ROUNDS * LOOP_INSTRUCTIONS : -1;
	if (!strcmp(event, "cycles"))
		return work->computes ? LOOP_ROUNDS * LOOP_CHAIN : -1;
	if (work->computes)
		return -1;
	if (!strcmp(event, "L1-dcache-load-misses"))
		return work->in_l1d ? 0 : known_work__lines(work, area);
	return work->in_llc ? 0 : known_work__lines(work, area);
}
