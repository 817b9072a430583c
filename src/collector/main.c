// SPDX-License-Identifier: GPL-2.0
/*
 * collector - loads the BPF programs and switches them on and off, segment by segment.
 *
 * It does no statistics and knows no strategy: commands come as lines on stdin, answers leave as JSON lines on stdout.
 * The end of stdin is the end of the master, and then of this process and of every program and link with it.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>
#include <sampling.skel.h>

#include "commands.h"
#include "functions/counters.h"
#include "functions/functions.h"
#include "hooks.h"
#include "instruments/probes.h"
#include "kernel/ksyms.h"
#include "kernel/privileges.h"
#include "kernel/seal.h"
#include "lines.h"
#include "report/message.h"
#include "report/names.h"
#include "sampling/sampler.h"
#include "sampling/stacks.h"

#define DEFAULT_FREQUENCY_HZ 199
#define FREQUENCY_MAX_HZ 50000
#define DEFAULT_GATE 16

/* Instead of SOCKETS_MAX, where these are more than the memlock limit. */
#define SOCKETS_WHERE_LOCKED 16384

static struct {
	struct watch watch;
	unsigned int frequency_hz;
	bool sends_in_pieces;
	bool functions;
	struct functions_options functions_options;
	bool probe;
	bool load;
} env = {
	.frequency_hz = DEFAULT_FREQUENCY_HZ,
	.functions_options = { .attach = ATTACH_ANY, .moves = MOVES_ALL, .gate_one_in = DEFAULT_GATE },
	.watch.follow = true,
};

/* Long options without a letter. */
enum { OPTION_FUNCTIONS_GATE = 256, OPTION_SEED, OPTION_COMM, OPTION_CGROUP, OPTION_NO_FOLLOW, OPTION_NETNS, OPTION_COPY_IN,
       OPTION_MOVES, OPTION_SENDS_IN_PIECES, OPTION_SOCKETS_MAX, OPTION_LOAD };

static const struct argp_option options[] = {
	{ "frequency", 'F', "HZ", 0, "Samples per second of each CPU (default 199)", 0 },
	{ "sends-in-pieces", OPTION_SENDS_IN_PIECES, NULL, 0,
	  "Some calls of our own traffic pass the socket more than once, as sendfile(2) does", 0 },
	{ "functions", 'f', NULL, 0, "Load the function hooks, too", 0 },
	{ "functions-gate", OPTION_FUNCTIONS_GATE, "N", 0,
	  "Of the copies of a thread, time one in N (default 16); all are counted", 0 },
	{ "seed", OPTION_SEED, "N", 0, "Which ones", 0 },
	{ "count", 'c', "EVENT,...", 0, "Read these with the clock in each function hook (default LLC-load-misses; also dTLB-load-misses, "
	  "dTLB-store-misses, iTLB-load-misses, cpu-clock, page-faults, raw ones as r03, and cycles, instructions, "
	  "L1-dcache-load-misses, of which the hooks' own are many; empty: none)", 0 },
	{ "attach", 'a', "KIND", 0, "Hook functions by fentry, kprobe.multi or kprobe only (default any: the first that the kernel takes)", 0 },
	{ "copy-in", OPTION_COPY_IN, "KIND", 0, "See the copy into the kernel by bracket or call-site (default any: by bracket "
	  "where that is fentry; bracket where the call cannot be found)", 0 },
	{ "moves", OPTION_MOVES, "LIST", 0, "Hook no function that only other bytes pass: zerocopy, pages, tls, map, or nothing of these "
	  "(default all)", 0 },
	{ "watch", 'w', NULL, 0, "The target is a program that copyscope did not start", 0 },
	{ "comm", OPTION_COMM, "NAME", 0, "With --watch: programs of this name that are started later, too", 0 },
	{ "cgroup", OPTION_CGROUP, "ID:LEVEL", 0, "With --watch: every process in this cgroup (v2) or below", 0 },
	{ "netns", OPTION_NETNS, "INODE", 0, "With --watch: only sockets of this network namespace", 0 },
	{ "sockets-max", OPTION_SOCKETS_MAX, "N", 0, "With --watch: tell so many open sockets apart (default 262144;"
	  " 16384 where they do not fit the memlock limit)", 0 },
	{ "no-follow", OPTION_NO_FOLLOW, NULL, 0, "With --watch: not the children", 0 },
	{ "probe", 'p', NULL, 0, "Say which hooks and events work here, as JSON, and exit", 0 },
	{ "load", OPTION_LOAD, NULL, 0, "Say which programs this kernel loads, as JSON, and exit; of each way to hook functions "
	  "one is attached", 0 },
	{},
};

static unsigned int number_of(const char *arg, const char *option, unsigned long most, struct argp_state *state)
{
	unsigned long number = 0;

	if (!lines__number(arg, most, &number))
		argp_error(state, "%s: %s: not between 1 and %lu", option, arg, most);
	return number;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	char *end;

	switch (key) {
	case 'F':
		env.frequency_hz = number_of(arg, "--frequency", FREQUENCY_MAX_HZ, state);
		return 0;
	case OPTION_SENDS_IN_PIECES:
		env.sends_in_pieces = true;
		return 0;
	case OPTION_FUNCTIONS_GATE:
		env.functions_options.gate_one_in = number_of(arg, "--functions-gate", GATE_MAX, state);
		return 0;
	case OPTION_SEED:
		env.functions_options.seed = strtoull(arg, &end, 10);
		if (*end)
			argp_error(state, "--seed: %s: not a number", arg);
		return 0;
	case 'f':
		env.functions = true;
		return 0;
	case 'c':
		if (!counters__valid(arg))
			argp_error(state, "--count: %s: not a list of at most %d of the events in --help", arg, COUNTERS_MAX);
		env.functions_options.count = arg;
		return 0;
	case 'a':
		env.functions_options.attach = !strcmp(arg, "any") ? ATTACH_ANY : !strcmp(arg, "fentry") ? ATTACH_FENTRY :
					       !strcmp(arg, "kprobe.multi") ? ATTACH_MULTI :
					       !strcmp(arg, "kprobe") ? ATTACH_KPROBE : ATTACH_NOTHING;
		if (env.functions_options.attach == ATTACH_NOTHING)
			argp_error(state, "--attach: %s: one of any, fentry, kprobe.multi, kprobe", arg);
		return 0;
	case OPTION_COPY_IN:
		env.functions_options.copy_in = !strcmp(arg, "bracket") ? COPY_IN_BRACKET :
						!strcmp(arg, "call-site") ? COPY_IN_CALL_SITE : COPY_IN_ANY;
		if (env.functions_options.copy_in == COPY_IN_ANY && strcmp(arg, "any"))
			argp_error(state, "--copy-in: %s: one of any, bracket, call-site", arg);
		return 0;
	case OPTION_MOVES:
		if (!functions__read_moves(arg, &env.functions_options.moves))
			argp_error(state, "--moves: %s: not a list of zerocopy, pages, tls, map", arg);
		return 0;
	case 'w':
		if (env.watch.mode == WATCH_NOBODY)
			env.watch.mode = WATCH_PROCESSES;
		return 0;
	case OPTION_COMM:
		snprintf(env.watch.comm, sizeof(env.watch.comm), "%s", arg);
		return 0;
	case OPTION_CGROUP:
		env.watch.mode = WATCH_CGROUP;
		if (sscanf(arg, "%" SCNu64 ":%u", &env.watch.cgroup_id, &env.watch.cgroup_level) != 2)
			argp_error(state, "--cgroup: %s: expected ID:LEVEL", arg);
		return 0;
	case OPTION_NETNS:
		env.watch.netns = number_of(arg, "--netns", UINT_MAX, state);
		return 0;
	case OPTION_SOCKETS_MAX:
		env.watch.sockets_max = number_of(arg, "--sockets-max", SOCKETS_MAX, state);
		return 0;
	case OPTION_NO_FOLLOW:
		env.watch.follow = false;
		return 0;
	case 'p':
		env.probe = true;
		return 0;
	case OPTION_LOAD:
		env.load = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse_option,
	.doc = "Loads and switches the BPF instruments of copyscope; driven by lines on standard input:\n\n"
	       "  target sender|receiver PID   whose work is measured; with --watch: target PID, any number of times\n"
	       "  netns sender|receiver INODE  its network namespace, made for that side alone\n"
	       "  symbols                      read /proc/kallsyms (after all modules are loaded)\n"
	       "  open INSTRUMENT[,...]        attach bytes, calls, sampler, functions, watch, volume, copies,\n"
	       "                               packets, shape; unarmed: the hooks of functions, which do nothing\n"
	       "  close                        detach all but watch, volume and function hooks, which do nothing\n"
	       "                               any more; drain the samples\n"
	       "  volume                       bytes that a watched program moved so far\n"
	       "  sockets                      what each of its TCP sockets moved\n"
	       "  samples                      the samples since this was asked last\n"
	       "  functions                    what function hooks counted so far\n"
	       "  gate N                       forget that, and time one call in N from now on\n"
	       "  report                       print everything and exit\n"
	       "\v"
	       "EXAMPLE\n  collector --probe\n",
};

static const char *what_loading_lacks(int err)
{
	__u32 id;

	if (err == -EPERM)
		return ": needs root, or CAP_BPF and CAP_PERFMON";
	/* What is not in the kernel's own BTF libbpf looks for in that of its modules, which only CAP_SYS_ADMIN may list. */
	if (err == -EINVAL && bpf_btf_get_next_id(0, &id) && errno == EPERM)
		return ": needs CAP_SYS_ADMIN, too: without it the BTF of this kernel's modules cannot be read";
	return "";
}

static void raise_to_hard(int resource)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(resource, &limit);
}

static void raise_limits(void)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };

	/* Kernels before 5.11 charge maps to it; failing is fine where memcg accounts for them. */
	if (setrlimit(RLIMIT_MEMLOCK, &unlimited))
		raise_to_hard(RLIMIT_MEMLOCK);
	/* An event for each CPU, and each hook. */
	raise_to_hard(RLIMIT_NOFILE);
}

/* How many fit: asked with a map that is charged as both of them. */
static unsigned int sockets_that_fit(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_NO_PREALLOC);
	int fd = bpf_map_create(BPF_MAP_TYPE_HASH, "try_sockets", sizeof(__u64), 2 * sizeof(struct socket_cell) + 64,
				SOCKETS_MAX, &options);

	if (fd < 0)
		return SOCKETS_WHERE_LOCKED;
	close(fd);
	return SOCKETS_MAX;
}

/*
 * It works for some milliseconds at a time, and what is measured waits meanwhile only for its hooks to be attached and detached.
 * As a task like others it waited for a CPU for tens of seconds where many tasks woke each other all the time.
 */
static void go_first(void)
{
	if (setpriority(PRIO_PROCESS, 0, -20))
		complain("priority", "%s: on a busy machine this run may take long", strerror(errno));
}

static int serve(struct collector *collector)
{
	int err = privileges__drop(false);

	if (err) {
		complain("capabilities", "%s", strerror(-err));
		return err;
	}
	/* A kernel may be built without. */
	err = seal__calls();
	if (err)
		complain("system calls", "seccomp: %s: they are not limited", strerror(-err));
	return commands__serve(collector);
}

/*
 * To let go of hooked functions takes a grace period for each of them (ftrace_shutdown() in kernel/trace/ftrace.c), also at exit. A
 * child holds them for as long; whoever waits for this process goes on. Who closes a link last waits: the child closes none before
 * this process has closed all, which it has when the child has another parent. They do nothing meanwhile: functions_on is not set.
 * Whoever still reads its stdout learns at its end that they are gone.
 */
static void leave_hooks_to_a_child(const struct collector *collector, int status)
{
	pid_t parent = getpid(), child;

	/* Its thread would not be in the child. */
	probes__detach(collector->probes);
	if (!probes__are_hooked(collector->probes))
		return;
	child = fork();
	if (child > 0)
		_exit(status);
	if (child < 0)
		return;
	setsid();
	close(STDIN_FILENO);
	close(STDERR_FILENO);
	/* What --probe says is read to its end. */
	if (env.probe)
		close(STDOUT_FILENO);
	while (getppid() == parent)
		usleep(1000);
}

static struct watched_map watched_map(const struct collector *collector)
{
	struct copyscope *skel = probes__skeleton(collector->probes);

	return (struct watched_map){
		.fd = bpf_map__fd(collector->sampler_skel->maps.watched),
		.changes = { &collector->sampler_skel->bss->watched_changes, &skel->bss->watched_changes },
	};
}

int main(int argc, char **argv)
{
	const struct watch *watch = &env.watch;
	static struct collector collector;
	int err;

	err = argp_parse(&argp, argc, argv, 0, NULL, NULL);
	if (err)
		return 2;
	collector.frequency_hz = env.frequency_hz;
	if (!env.functions)
		env.functions_options.attach = ATTACH_NOTHING;
	/* A refused program is a result here, reported with its hook. */
	libbpf_set_print(NULL);
	raise_limits();
	go_first();
	if (env.watch.mode != WATCH_NOBODY && !env.watch.sockets_max)
		env.watch.sockets_max = sockets_that_fit();
	collector.watch = env.watch;
	if (env.watch.mode != WATCH_NOBODY)
		names__watch();
	else
		watch = NULL;
	err = stacks__new(&collector.stacks);
	if (!err)
		err = sampler__load(&collector.sampler_skel, watch);
	if (!err)
		err = probes__open(&collector.probes, env.sends_in_pieces, &env.functions_options, watch,
				   collector.sampler_skel);
	if (!err && watch)
		collector.watched.map = watched_map(&collector);
	if (err)
		complain("bpf", "load: %s%s", strerror(-err), what_loading_lacks(err));
	else
		err = env.load ? commands__load(&collector) :
		      env.probe ? commands__probe(&collector) : serve(&collector);
	if (collector.probes)
		leave_hooks_to_a_child(&collector, err ? 1 : 0);

	stacks__free(collector.stacks);
	sampler__close(collector.sampler);
	probes__close(collector.probes);
	sampling__destroy(collector.sampler_skel);
	ksyms__free(collector.ksyms);
	return err ? 1 : 0;
}
