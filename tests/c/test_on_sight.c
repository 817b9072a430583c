// SPDX-License-Identifier: GPL-2.0-only
/* Tests of on_sight.h: a thread attaches a hook after a BPF program has seen a matching call. The test takes the part of BPF. */
#include <stddef.h>
#include <string.h>
#include <time.h>

#define bpf_program__attach attach_seen_hook
#include "../../src/collector/instruments/on_sight.c"
#include "check.h"

#define ROUNDS 10

static struct copyscope__bss globals;
static struct copyscope skeleton = { .bss = &globals };
static struct hook hooks[HOOK_CNT];
static struct hook *const spliced = &hooks[HOOK_volume_spliced];
static _Atomic unsigned int attachments;
/* errno with which the simulated kernel refuses to attach; 0: it attaches. */
static int refusal;

struct bpf_program *tracepoints__program(struct copyscope *of, enum hook_id id)
{
	(void)of;
	return (struct bpf_program *)&hooks[id];
}

bool tracepoints__works(const struct hook *hook)
{
	return hook->state == STATE_READY || hook->state == STATE_ATTACHED;
}

struct bpf_link *attach_seen_hook(const struct bpf_program *program)
{
	attachments++;
	errno = refusal;
	return refusal ? NULL : (struct bpf_link *)program;
}

/* Hidden from the thread sanitizer, like the BPF program that this function replaces. */
__attribute__((noinline, no_sanitize("thread"))) static void see_a_splice(void)
{
	*(volatile __u32 *)&globals.splices_seen = 1;
}

static void pause_ms(long ms)
{
	const struct timespec length = { .tv_nsec = ms * 1000000 };

	nanosleep(&length, NULL);
}

static void begin(int why_refused)
{
	memset(hooks, 0, sizeof(hooks));
	memset(&globals, 0, sizeof(globals));
	hooks[HOOK_splice_seen].state = spliced->state = STATE_READY;
	refusal = why_refused;
	attachments = 0;
}

THREADS_TEST("on sight: the hook is attached after something was seen for it")
{
	struct on_sight *on_sight = NULL;

	begin(0);
	CHECK(on_sight__waits(HOOK_volume_spliced, hooks, &skeleton));
	CHECK(!on_sight__waits(HOOK_splice_seen, hooks, &skeleton));
	CHECK_EQUAL(on_sight__start(&on_sight, spliced, &skeleton), 0);
	pause_ms(50);
	CHECK_EQUAL(attachments, 0);
	see_a_splice();
	for (int i = 0; i < 200 && !attachments; i++)
		pause_ms(10);
	on_sight__stop(on_sight);
	CHECK_EQUAL(attachments, 1);
	CHECK(spliced->link && spliced->state == STATE_ATTACHED && globals.splices_counted);
}

THREADS_TEST("on sight: without the hook that sees such calls, the other one does not wait")
{
	begin(0);
	hooks[HOOK_splice_seen].state = STATE_MISSING;
	CHECK(!on_sight__waits(HOOK_volume_spliced, hooks, &skeleton));
}

THREADS_TEST("on sight: after a call was seen, the hook does not wait")
{
	begin(0);
	see_a_splice();
	CHECK(!on_sight__waits(HOOK_volume_spliced, hooks, &skeleton));
}

/* Stop the thread at a random time between two of its checks. In half of the cases a call is seen at that moment. */
THREADS_TEST("on sight: whenever it is stopped, what is attached is counted and nothing else is")
{
	for (int round = 0; round < ROUNDS; round++) {
		struct on_sight *on_sight = NULL;

		begin(0);
		CHECK_EQUAL(on_sight__start(&on_sight, spliced, &skeleton), 0);
		pause_ms(5 * round);
		if (round % 2)
			see_a_splice();
		on_sight__stop(on_sight);
		CHECK_EQUAL(!spliced->link, !attachments);
		CHECK_EQUAL(globals.splices_counted, attachments);
		CHECK_EQUAL(spliced->state, attachments ? STATE_ATTACHED : STATE_READY);
		CHECK(round % 2 || !attachments);
	}
	on_sight__stop(NULL);
}

THREADS_TEST("on sight: a hook that the kernel refuses says why and counts nothing")
{
	struct on_sight *on_sight = NULL;

	begin(EPERM);
	see_a_splice();
	CHECK_EQUAL(on_sight__start(&on_sight, spliced, &skeleton), 0);
	on_sight__stop(on_sight);
	CHECK_EQUAL(attachments, 1);
	CHECK(!spliced->link && spliced->state == STATE_REFUSED && !globals.splices_counted);
	CHECK(!strcmp(spliced->reason, "attach: Operation not permitted"));
}
