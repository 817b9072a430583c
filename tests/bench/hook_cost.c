// SPDX-License-Identifier: GPL-2.0
/*
 * hook_cost.c - what one event of a hook costs: CPU time of a known number of events with the program attached, less that
 * of the same work without it.
 *
 *	hook_cost KIND TARGET WORK CALLS PAIRS [READS]
 *
 * KIND    tp_btf, raw_tp, tracepoint, fentry, fexit, kprobe, kretprobe: a program that only counts (hook_kinds.bpf.c);
 *         perf_event: a timer each 100 us, without a program; perf_event+program, perf_event+stack;
 *         ours:PROGRAM, a program of the collector; or counted, timed: its hooks at the entry and the exit of a send, by fentry,
 *         where no call is timed and where each is
 * TARGET  tracepoint or function
 * WORK    getpid; peek: recv() that finds a byte and leaves it; unix, tcp: one byte through such a socket pair; empty: a send of
 *         nothing over TCP, which comes back at once
 * READS   clock, or a number of perf counters that the program reads
 *
 * One line of JSON on stdout: "ns": one value per pair, "per_event"; status 3 and a reason on stderr when it cannot run.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>
#include <hook_kinds.skel.h>

#include "abi.h"
#include "hooks.h"

#define TIMER_NS 100000
#define CANNOT 3

struct subject {
	const char *kind;
	const char *target;
	struct bpf_program *program;
	struct bpf_link *link;
	/* Of a pair: at the exit. */
	struct bpf_program *leave;
	struct bpf_link *leave_link;
	int event_fd;
};

static int sockets[2];

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(CANNOT);
}

/* -- the work ---------------------------------------------------------------------------------------------------- */

static void open_unix(void)
{
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || send(sockets[1], "x", 1, 0) != 1)
		die("socketpair: %s", strerror(errno));
}

static void open_tcp(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	sockets[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length) ||
	    connect(sockets[1], (struct sockaddr *)&address, length))
		die("tcp over lo: %s", strerror(errno));
	sockets[0] = accept(listener, NULL, NULL);
	close(listener);
}

static void do_getpid(void)
{
	syscall(SYS_getpid);
}

static void do_peek(void)
{
	char byte;

	recv(sockets[0], &byte, 1, MSG_PEEK);
}

static void do_exchange(void)
{
	char byte = 0;

	if (send(sockets[1], &byte, 1, 0) != 1 || recv(sockets[0], &byte, 1, 0) != 1)
		die("exchange: %s", strerror(errno));
}

static void do_empty(void)
{
	if (send(sockets[1], "", 0, 0))
		die("send: %s", strerror(errno));
}

static const struct work {
	const char *name;
	void (*open)(void);
	void (*once)(void);
} works[] = { { "getpid", NULL, do_getpid }, { "peek", open_unix, do_peek }, { "unix", open_unix, do_exchange },
	    { "tcp", open_tcp, do_exchange }, { "empty", open_tcp, do_empty } };

static const struct work *find_work(const char *name)
{
	for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++)
		if (!strcmp(name, works[i].name))
			return &works[i];
	die("%s: no such work", name);
	return NULL;
}

/* CPU time of this thread: another program's turn on the CPU is not in it. */
static unsigned long long cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static double run(const struct work *work, long calls)
{
	unsigned long long began_ns = cpu_ns();

	for (long i = 0; i < calls; i++)
		work->once();
	return cpu_ns() - began_ns;
}

/* -- the hook ---------------------------------------------------------------------------------------------------- */

static int open_timer(void)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = TIMER_NS,
		.disabled = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		die("perf_event_open: %s", strerror(errno));
	return fd;
}

static void attach(struct subject *subject)
{
	const char *kind = subject->kind;

	if (!strncmp(kind, "perf_event", 10)) {
		ioctl(subject->event_fd, PERF_EVENT_IOC_ENABLE, 0);
		return;
	}
	if (!strcmp(kind, "raw_tp"))
		subject->link = bpf_program__attach_raw_tracepoint(subject->program, subject->target);
	else if (!strcmp(kind, "tracepoint"))
		subject->link = bpf_program__attach_tracepoint(subject->program, "raw_syscalls", subject->target);
	else if (!strcmp(kind, "kprobe") || !strcmp(kind, "kretprobe"))
		subject->link = bpf_program__attach_kprobe(subject->program, !strcmp(kind, "kretprobe"), subject->target);
	else if (subject->leave)
		subject->link = bpf_program__attach_trace(subject->program);
	else
		subject->link = bpf_program__attach(subject->program);
	if (subject->link && subject->leave)
		subject->leave_link = bpf_program__attach_trace(subject->leave);
	if (!subject->link || (subject->leave && !subject->leave_link))
		die("%s on %s: attach: %s", kind, subject->target, strerror(errno));
}

static void detach(struct subject *subject)
{
	if (!strncmp(subject->kind, "perf_event", 10))
		ioctl(subject->event_fd, PERF_EVENT_IOC_DISABLE, 0);
	bpf_link__destroy(subject->leave_link);
	bpf_link__destroy(subject->link);
	subject->link = subject->leave_link = NULL;
}

/* cycles and its like where there is a PMU, else what the kernel itself counts. Returns which. */
static const char *open_counters(struct hook_kinds *kinds, int count)
{
	static const __u64 hardware[] = { PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
					  PERF_COUNT_HW_CACHE_MISSES, PERF_COUNT_HW_CACHE_REFERENCES };
	static const __u64 software[] = { PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_PAGE_FAULTS,
					  PERF_COUNT_SW_CONTEXT_SWITCHES, PERF_COUNT_SW_CPU_MIGRATIONS };
	struct perf_event_attr attr = { .size = sizeof(attr), .type = PERF_TYPE_HARDWARE };
	int fds[4];

	for (int i = 0; i < count; i++) {
		attr.config = attr.type == PERF_TYPE_HARDWARE ? hardware[i] : software[i];
		fds[i] = syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
		if (fds[i] < 0 && attr.type == PERF_TYPE_HARDWARE) {
			attr.type = PERF_TYPE_SOFTWARE;
			i = -1;
			continue;
		}
		if (fds[i] < 0 || bpf_map_update_elem(bpf_map__fd(kinds->maps.counters), &i, &fds[i], BPF_ANY))
			die("counter %d: %s", i, strerror(errno));
	}
	return count ? attr.type == PERF_TYPE_HARDWARE ? "hardware" : "software" : NULL;
}

static struct hook_kinds *load_kinds(struct subject *subject, const char *reads)
{
	struct hook_kinds *kinds = hook_kinds__open();
	char name[64];
	int err;

	if (!kinds)
		die("open: %s", strerror(errno));
	snprintf(name, sizeof(name), "by_%s", strncmp(subject->kind, "perf_event", 10) ? subject->kind : "perf_event");
	subject->program = bpf_object__find_program_by_name(kinds->obj, name);
	if (!subject->program)
		die("%s: no such kind", subject->kind);
	bpf_program__set_autoload(subject->program, true);
	if (!strcmp(subject->kind, "tp_btf") || !strcmp(subject->kind, "fentry") || !strcmp(subject->kind, "fexit"))
		bpf_program__set_attach_target(subject->program, 0, subject->target);
	kinds->rodata->clock_reads = reads && !strcmp(reads, "clock");
	kinds->rodata->counter_reads = reads ? atoi(reads) : 0;
	kinds->rodata->stack_reads = !strcmp(subject->kind, "perf_event+stack");
	err = hook_kinds__load(kinds);
	if (err)
		die("%s on %s: load: %s", subject->kind, subject->target, strerror(-err));
	kinds->bss->target_tgid = getpid();
	if (!strncmp(subject->kind, "perf_event", 10)) {
		subject->event_fd = open_timer();
		if (strcmp(subject->kind, "perf_event") &&
		    ioctl(subject->event_fd, PERF_EVENT_IOC_SET_BPF, bpf_program__fd(subject->program)))
			die("%s: attach: %s", subject->kind, strerror(errno));
	}
	return kinds;
}

/* The tracepoint that hooks.h has for a program. */
static const char *tracepoint_of(const char *program)
{
	static const char *const rows[][2] = {
#define HOOK(id, instrument, tracepoint, need) { "on_" #id, #tracepoint },
		HOOKS(HOOK)
#undef HOOK
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!strcmp(program, rows[i][0]))
			return rows[i][1];
	die("%s: no row of hooks.h", program);
	return NULL;
}

/* Whether a program is of those for a program that we did not write (hooks.h). */
static bool is_for_watching(const char *program)
{
	static const char *const rows[][2] = {
#define HOOK(id, instrument, tracepoint, need) { "on_" #id, #instrument },
		HOOKS(HOOK)
#undef HOOK
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!strcmp(program, rows[i][0]))
			return !strcmp(rows[i][1], "watch") || !strcmp(rows[i][1], "volume") || !strcmp(rows[i][1], "copies") ||
			       !strcmp(rows[i][1], "shape");
	return false;
}

/* A program of the collector, for a process that is the sender, or is watched; every call in 16 is timed, as by default. */
static struct copyscope *load_ours(struct subject *subject, const char *name)
{
	struct copyscope *ours = copyscope__open();
	__u32 tgid = getpid(), by = WATCHED_ITSELF;
	int err;

	subject->program = ours ? bpf_object__find_program_by_name(ours->obj, name) : NULL;
	if (!subject->program)
		die("%s: the collector has no such program", name);
	bpf_program__set_autoload(subject->program, true);
	bpf_program__set_attach_target(subject->program, 0, tracepoint_of(name));
	ours->rodata->time_one_in = 16;
	ours->rodata->watch_mode = is_for_watching(name) ? WATCH_PROCESSES : WATCH_NOBODY;
	ours->rodata->call_of_nr[SYS_recvfrom] = CALL_RECVFROM;
	ours->rodata->call_of_nr[SYS_sendto] = CALL_SENDTO;
	err = copyscope__load(ours);
	if (err)
		die("%s: load: %s", name, strerror(-err));
	ours->bss->target_tgid[SIDE_SENDER] = getpid();
	if (bpf_map_update_elem(bpf_map__fd(ours->maps.watched), &tgid, &by, BPF_ANY))
		die("%s: watched: %s", name, strerror(errno));
	ours->bss->watched_first = tgid;
	return ours;
}

static void prepare_hook(struct bpf_program *program, enum bpf_attach_type type, const char *function)
{
	if (bpf_program__set_type(program, BPF_PROG_TYPE_TRACING) || bpf_program__set_expected_attach_type(program, type) ||
	    bpf_program__set_attach_target(program, 0, function))
		die("%s: %s", function, strerror(errno));
	bpf_program__set_autoload(program, true);
}

/* The function hooks of a send, for a process that is the sender; of the calls one in so many is timed. */
static struct copyscope *load_hooks(struct subject *subject, unsigned int one_in)
{
	struct copyscope *ours = copyscope__open();
	int err;

	if (!ours)
		die("open: %s", strerror(errno));
	subject->program = ours->progs.enter_send;
	subject->leave = ours->progs.leave_send;
	prepare_hook(subject->program, BPF_TRACE_FENTRY, subject->target);
	prepare_hook(subject->leave, BPF_TRACE_FEXIT, subject->target);
	/* tcp_sendmsg(sk, msg, size) */
	ours->rodata->function_arguments[ROW_send] = 3;
	ours->data->gate_one_in = one_in;
	err = copyscope__load(ours);
	if (err)
		die("%s: load: %s", subject->target, strerror(-err));
	ours->bss->target_tgid[SIDE_SENDER] = getpid();
	ours->bss->functions_on = 1;
	return ours;
}

/* -- both -------------------------------------------------------------------------------------------------------- */

/* How many events one call makes: counted by a program that only counts, on the same hook. */
static double events_per_call(const char *target, const struct work *work, long calls)
{
	struct subject counting = { .kind = "raw_tp", .target = target };
	struct hook_kinds *kinds = load_kinds(&counting, NULL);
	double events;

	attach(&counting);
	/* The call that attaches and the one that detaches may be seen, too. */
	kinds->bss->events = 0;
	run(work, calls);
	events = kinds->bss->events;
	detach(&counting);
	hook_kinds__destroy(kinds);
	return events / calls;
}

int main(int argc, char **argv)
{
	struct subject subject = {};
	struct copyscope *ours = NULL;
	struct hook_kinds *kinds = NULL;
	const char *counted = NULL;
	const struct work *work;
	cpu_set_t cpu0;
	long calls, pairs;
	double per_call = 0;

	if (argc < 6)
		die("usage: hook_cost KIND TARGET WORK CALLS PAIRS [READS]");
	subject.kind = argv[1];
	subject.target = argv[2];
	work = find_work(argv[3]);
	calls = atol(argv[4]);
	pairs = atol(argv[5]);
	CPU_ZERO(&cpu0);
	CPU_SET(0, &cpu0);
	sched_setaffinity(0, sizeof(cpu0), &cpu0);
	libbpf_set_print(NULL);
	/* Classic tracepoints are found there, and it need not be mounted on the machine. */
	if (!strcmp(subject.kind, "tracepoint") && access("/sys/kernel/tracing/events", R_OK) &&
	    (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	     mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL)))
		die("tracefs: %s", strerror(errno));
	if (work->open)
		work->open();
	if (!strncmp(subject.kind, "ours:", 5)) {
		per_call = events_per_call(subject.target, work, calls);
		ours = load_ours(&subject, subject.kind + 5);
	} else if (!strcmp(subject.kind, "counted") || !strcmp(subject.kind, "timed")) {
		per_call = 2;
		ours = load_hooks(&subject, strcmp(subject.kind, "timed") ? UINT_MAX : 1);
	} else {
		kinds = load_kinds(&subject, argc > 6 ? argv[6] : NULL);
		counted = open_counters(kinds, kinds->rodata->counter_reads);
	}
	run(work, calls);
	printf("{\"ns\": [");
	for (long pair = 0; pair < pairs; pair++) {
		double on, off = 0, events;

		if (pair % 2)
			off = run(work, calls);
		attach(&subject);
		if (kinds)
			kinds->bss->events = 0;
		on = run(work, calls);
		events = kinds ? kinds->bss->events : per_call * calls;
		detach(&subject);
		if (!(pair % 2))
			off = run(work, calls);
		/* Without a program nobody counts the interrupts; a timer that keeps its time has made so many. */
		if (!strcmp(subject.kind, "perf_event"))
			events = on / TIMER_NS;
		if (events < 1)
			die("%s on %s: no event in %ld calls", subject.kind, subject.target, calls);
		per_call = events / calls;
		printf("%s%.2f", pair ? ", " : "", (on - off) / events);
	}
	printf("], \"events_per_call\": %.4f", per_call);
	if (counted)
		printf(", \"counters\": \"%s\"", counted);
	puts("}");
	if (kinds && kinds->bss->failed)
		die("%s: %llu reads failed", subject.kind, (unsigned long long)kinds->bss->failed);
	hook_kinds__destroy(kinds);
	copyscope__destroy(ours);
	return 0;
}
