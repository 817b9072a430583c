/* Hooks that come and go by a thread of their own, and a kernel beside it whose calls begin and end. */
#include <stddef.h>
#include <time.h>

#define bpf_program__attach attach_duty_hook
#define bpf_link__destroy detach_duty_hook
#include "../../src/collector/instruments/duty_cycle.c"
#include "check.h"

#define HOOKS 3
#define SHARE 2
#define ROUNDS 20

/* As who switches hooks sees a kernel: the sanitizer does not see what BPF does, and these take its part. */
#define UNSEEN __attribute__((noinline, no_sanitize("thread")))

static volatile __u32 calls_open, calls_begun;

UNSEEN static void begin_calls(void)
{
	calls_open = 1;
	calls_begun += ENOUGH;
}

UNSEEN static void end_calls(void)
{
	calls_open = 0;
}

UNSEEN static bool any_call_is_open(void)
{
	return calls_open;
}

/* Programs and their links are addresses in here: nobody looks into them. */
static char places[HOOKS];
static struct bpf_link *links[HOOKS];
static bool attached[HOOKS];
/* The hook that the kernel does not attach. */
static int refused;
/* The thread is over, and the test detaches what it has left. */
static bool leaving;
static unsigned int wrong_turns, whole_cycles;

/* The one that begins calls comes last: what follows them to their end is there before. */
struct bpf_link *attach_duty_hook(const struct bpf_program *program)
{
	int number = (const char *)program - places;

	if (number == refused) {
		errno = EPERM;
		return NULL;
	}
	for (int i = number + 1; i < HOOKS; i++)
		wrong_turns += !attached[i];
	wrong_turns += attached[number];
	attached[number] = true;
	if (!number)
		begin_calls();
	return (struct bpf_link *)&places[number];
}

/* It goes first, and the others not before all that it began has ended. */
int detach_duty_hook(struct bpf_link *link)
{
	int number = (char *)link - places;

	if (!link)
		return 0;
	wrong_turns += !attached[number];
	if (number && !leaving)
		wrong_turns += attached[0] || any_call_is_open();
	attached[number] = false;
	whole_cycles += !leaving && number == HOOKS - 1;
	return 0;
}

static struct duty_hooks all_hooks(void)
{
	struct duty_hooks hooks = { .count = HOOKS, .open = &calls_open, .begun = &calls_begun };

	for (int i = 0; i < HOOKS; i++) {
		hooks.programs[i] = (struct bpf_program *)&places[i];
		hooks.links[i] = &links[i];
	}
	return hooks;
}

static void begin(int not_attached)
{
	refused = not_attached;
	leaving = false;
	wrong_turns = whole_cycles = 0;
	end_calls();
}

/* A call takes up to 7 ms, and whoever waits for its end looks each millisecond. */
static void let_calls_end(int ms)
{
	const struct timespec one = { .tv_nsec = 1000000 };

	for (int i = 0; i < ms; i++) {
		nanosleep(&one, NULL);
		if (i % 7 == 6)
			end_calls();
	}
}

/* As who closes an instrument does with the links when the thread is over: no other thread has them any more. */
static void detach_the_rest(void)
{
	leaving = true;
	for (int i = 0; i < HOOKS; i++) {
		wrong_turns += !links[i] != !attached[i];
		detach_duty_hook(links[i]);
		links[i] = NULL;
	}
}

/* Stopped before the first cycle, in it, and after it, which comes in the first 20 ms and is over in 10 more. */
THREADS_TEST("duty cycle: what begins calls comes last and goes first, and whoever stops it has the links")
{
	const struct duty_hooks hooks = all_hooks();
	unsigned int whole = 0;

	for (int round = 0; round < ROUNDS; round++) {
		struct duty_cycle *cycle = NULL;

		begin(-1);
		CHECK_EQUAL(duty_cycle__start(&cycle, &hooks, SHARE), 0);
		let_calls_end(2 * round);
		CHECK_EQUAL(duty_cycle__stop(cycle), 0);
		detach_the_rest();
		CHECK_EQUAL(wrong_turns, 0);
		whole += whole_cycles;
	}
	CHECK(whole > ROUNDS / 4);
}

THREADS_TEST("duty cycle: what the kernel refuses is told by the stop, and what came before it is left attached")
{
	const struct duty_hooks hooks = all_hooks();
	struct duty_cycle *cycle = NULL;

	begin(1);
	CHECK_EQUAL(duty_cycle__start(&cycle, &hooks, SHARE), 0);
	let_calls_end(40);
	CHECK_EQUAL(duty_cycle__stop(cycle), -EPERM);
	CHECK(!links[0] && !links[1] && links[2]);
	detach_the_rest();
	CHECK_EQUAL(wrong_turns, 0);
	CHECK_EQUAL(duty_cycle__stop(NULL), 0);
}
