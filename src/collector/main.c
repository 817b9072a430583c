// SPDX-License-Identifier: GPL-2.0-only
/*
 * collector - loads the BPF programs and switches them on and off, segment by segment.
 *
 * It computes no statistics and knows no send strategy. It reads commands as lines from stdin and writes answers as
 * JSON lines to stdout. When the process that started it exits, stdin ends, and then the collector exits and all its
 * programs and links go away.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
#include "kernel/task_offsets.h"
#include "lines.h"
#include "measure.h"
#include "report/message.h"
#include "report/names.h"
#include "sampling/sampler.h"
#include "sampling/stacks.h"

#define DEFAULT_FREQUENCY_HZ 199
#define FREQUENCY_MAX_HZ 50000
#define DEFAULT_GATE 16

/* Used instead of SOCKETS_MAX if that many sockets exceed the memlock limit. */
#define SOCKETS_WHERE_LOCKED 16384

static struct {
	struct watch watch;
	unsigned int frequency_hz;
	bool sends_in_pieces;
	bool functions;
	struct functions_options functions_options;
	bool probe;
	bool load;
	bool measure;
	unsigned int measured_cpu;
	unsigned long llc_bytes;
} env = {
	.frequency_hz = DEFAULT_FREQUENCY_HZ,
	.functions_options = { .attach = ATTACH_ANY, .moves = MOVES_ALL, .gate_one_in = DEFAULT_GATE },
	.watch.follow = true,
};

/* Long options without a letter. */
enum { OPTION_FUNCTIONS_GATE = 256, OPTION_SEED, OPTION_COMM, OPTION_CGROUP, OPTION_ALL, OPTION_NO_FOLLOW, OPTION_NETNS, OPTION_COPY_IN,
       OPTION_MOVES, OPTION_SENDS_IN_PIECES, OPTION_SOCKETS_MAX, OPTION_LOAD, OPTION_MEASURE };

static const struct argp_option options[] = {
	{ "frequency", 'F', "HZ", 0, "Samples per second and CPU (default 199)", 0 },
	{ "sends-in-pieces", OPTION_SENDS_IN_PIECES, NULL, 0,
	  "Calls of our own traffic may pass the socket more than once, as sendfile(2) does", 0 },
	{ "functions", 'f', NULL, 0, "Load the function hooks, too", 0 },
	{ "functions-gate", OPTION_FUNCTIONS_GATE, "N", 0,
	  "Time one in N copies of each thread (default 16); all are counted", 0 },
	{ "seed", OPTION_SEED, "N", 0, "Seed of the random selection of timed copies", 0 },
	{ "count", 'c', "EVENT,...", 0,
	  "Events to read with the clock in each function hook (default LLC-load-misses; also dTLB-load-misses, dTLB-store-misses, "
	  "iTLB-load-misses, cpu-clock, page-faults, raw events such as r03, and cycles, instructions, L1-dcache-load-misses, "
	  "many of which the hooks cause themselves; empty: none)", 0 },
	{ "attach", 'a', "KIND", 0,
	  "Hook functions only by fentry, kprobe.multi or kprobe (default any: the first that the kernel accepts)", 0 },
	{ "copy-in", OPTION_COPY_IN, "KIND", 0,
	  "Measure the copy into the kernel by bracket or call-site (default any: bracket, "
	  "but call-site if bracket would need kprobes and the call is found)", 0 },
	{ "moves", OPTION_MOVES, "LIST", 0,
	  "How our own traffic moves bytes: zerocopy, pages, tls, map or empty; functions for other ways are not hooked "
	  "(default: all)", 0 },
	{ "watch", 'w', NULL, 0, "The target is another program instead of our own traffic", 0 },
	{ "comm", OPTION_COMM, "NAME", 0, "With --watch: also watch programs of this name that start later", 0 },
	{ "cgroup", OPTION_CGROUP, "ID:LEVEL", 0, "With --watch: watch every process in this cgroup (v2) and below", 0 },
	{ "all", OPTION_ALL, NULL, 0, "With --watch: watch all processes, and count the bytes of each program in each cgroup", 0 },
	{ "netns", OPTION_NETNS, "INODE", 0, "With --watch: count only sockets of this network namespace", 0 },
	{ "sockets-max", OPTION_SOCKETS_MAX, "N", 0, "With --watch: maximum number of sockets in each map (default 262144;"
	  " 16384 if that exceeds the memlock limit)", 0 },
	{ "no-follow", OPTION_NO_FOLLOW, NULL, 0, "With --watch: do not watch child processes", 0 },
	{ "probe", 'p', NULL, 0, "Print as JSON which hooks and events work on this machine, and exit", 0 },
	{ "load", OPTION_LOAD, NULL, 0, "Print as JSON which programs this kernel loads, and exit; for each way to hook functions, "
	  "one program is attached", 0 },
	{ "measure", OPTION_MEASURE, "CPU:BYTES", 0, "Do work with known counts on this CPU, whose last-level cache has this size; print "
	  "as JSON what its events counted, and exit", 0 },
	{},
};

static unsigned int parse_number(const char *arg, const char *option, unsigned long max, struct argp_state *state)
{
	unsigned long number = 0;

	if (!lines__number(arg, max, &number))
		argp_error(state, "%s %s: out of range, choose 1 to %lu", option, arg, max);
	return number;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	char *end;

	switch (key) {
	case 'F':
		env.frequency_hz = parse_number(arg, "--frequency", FREQUENCY_MAX_HZ, state);
		return 0;
	case OPTION_SENDS_IN_PIECES:
		env.sends_in_pieces = true;
		return 0;
	case OPTION_FUNCTIONS_GATE:
		env.functions_options.gate_one_in = parse_number(arg, "--functions-gate", GATE_MAX, state);
		return 0;
	case OPTION_SEED:
		env.functions_options.seed = strtoull(arg, &end, 10);
		if (*end)
			argp_error(state, "--seed %s: not a number", arg);
		return 0;
	case 'f':
		env.functions = true;
		return 0;
	case 'c':
		if (!counters__valid(arg))
			argp_error(state, "--count %s: expected at most %d known events, separated by commas; --help lists them", arg, COUNTERS_MAX);
		env.functions_options.count = arg;
		return 0;
	case 'a':
		env.functions_options.attach = !strcmp(arg, "any") ? ATTACH_ANY : !strcmp(arg, "fentry") ? ATTACH_FENTRY :
					       !strcmp(arg, "kprobe.multi") ? ATTACH_MULTI :
					       !strcmp(arg, "kprobe") ? ATTACH_KPROBE : ATTACH_NOTHING;
		if (env.functions_options.attach == ATTACH_NOTHING)
			argp_error(state, "--attach %s: unknown kind; choose any, fentry, kprobe.multi or kprobe", arg);
		return 0;
	case OPTION_COPY_IN:
		env.functions_options.copy_in = !strcmp(arg, "bracket") ? COPY_IN_BRACKET :
						!strcmp(arg, "call-site") ? COPY_IN_CALL_SITE : COPY_IN_ANY;
		if (env.functions_options.copy_in == COPY_IN_ANY && strcmp(arg, "any"))
			argp_error(state, "--copy-in %s: unknown kind; choose any, bracket or call-site", arg);
		return 0;
	case OPTION_MOVES:
		if (!functions__read_moves(arg, &env.functions_options.moves))
			argp_error(state, "--moves %s: expected a list of zerocopy, pages, tls and map", arg);
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
			argp_error(state, "--cgroup %s: expected ID:LEVEL", arg);
		return 0;
	case OPTION_ALL:
		env.watch.mode = WATCH_ALL;
		return 0;
	case OPTION_NETNS:
		env.watch.netns = parse_number(arg, "--netns", UINT_MAX, state);
		return 0;
	case OPTION_SOCKETS_MAX:
		env.watch.sockets_max = parse_number(arg, "--sockets-max", SOCKETS_MAX, state);
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
	case OPTION_MEASURE:
		env.measure = true;
		if (sscanf(arg, "%u:%lu", &env.measured_cpu, &env.llc_bytes) != 2)
			argp_error(state, "--measure %s: expected CPU:BYTES", arg);
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
	.doc = "Loads the BPF instruments of copyscope and switches them on and off. Reads commands from standard input:\n\n"
	       "  target sender|receiver PID   process to measure; with --watch: target PID, repeatable\n"
	       "  netns sender|receiver INODE  network namespace that only this process uses\n"
	       "  symbols                      read /proc/kallsyms (after all modules are loaded)\n"
	       "  open INSTRUMENT[,...]        attach bytes, calls, sampler, functions, watch, volume, copies,\n"
	       "                               packets, shape; unarmed: function hooks that do not count;\n"
	       "                               splices, before volume: its hook of spliced bytes does not wait\n"
	       "  close                        detach all but watch, volume and function hooks, of which the last\n"
	       "                               stop counting; read the samples\n"
	       "  spare [CPUS]                 CPUs on which the sampler opens no events, such as 2-3,6\n"
	       "  volume                       bytes that the watched program has moved so far\n"
	       "  sockets                      bytes that each of its TCP sockets has moved\n"
	       "  peers                        addresses and devices of its peers\n"
	       "  programs                     with --all: calls and bytes of each program in each cgroup\n"
	       "  samples                      samples since the previous call; samples forget also discards them\n"
	       "  functions                    what function hooks have counted so far\n"
	       "  gate N                       reset these counts, and time one call in N from now on\n"
	       "  report                       print everything and exit\n"
	       "\v"
	       "EXAMPLE\n  collector --probe\n",
};

static const char *load_error_hint(int err)
{
	__u32 id;

	if (err == -EMFILE)
		return ": every hook needs one; raise the hard limit of file descriptors (ulimit -Hn)";
	if (err == -EPERM)
		return ": needs root, or CAP_BPF and CAP_PERFMON";
	if (err == -EOPNOTSUPP)
		return ": --all needs a tracepoint that Linux has since 6.3";
	/*
	 * libbpf looks up symbols that are not in the kernel's own BTF in the BTF of its modules, which only
	 * CAP_SYS_ADMIN may list.
	 */
	if (err == -EINVAL && bpf_btf_get_next_id(0, &id) && errno == EPERM)
		return ": also needs CAP_SYS_ADMIN, to read the BTF of kernel modules";
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

	/*
	 * Kernels before 5.11 charge maps to this limit. Failure is harmless on newer kernels, where memcg accounts
	 * for maps.
	 */
	if (setrlimit(RLIMIT_MEMLOCK, &unlimited))
		raise_to_hard(RLIMIT_MEMLOCK);
	/* Every CPU needs an event, and every hook needs a file descriptor. */
	raise_to_hard(RLIMIT_NOFILE);
}

/*
 * Return the number of sockets that fit into memory, after trying a map that is charged as much as both maps of
 * sockets.
 */
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
 * The collector works for some milliseconds at a time. The measured program waits for it only while hooks are
 * attached or detached. At normal priority it waited for a CPU for tens of seconds on a machine where many tasks woke
 * each other all the time.
 */
static void raise_priority(void)
{
	if (setpriority(PRIO_PROCESS, 0, -20))
		complain("priority", "cannot raise it: %s; on a busy machine this run may take long", strerror(errno));
}

static int serve(struct collector *collector)
{
	int err = privileges__drop(false);

	/* From now on the end of stdin shows that copyscope is gone, and hooks are detached in order. */
	prctl(PR_SET_PDEATHSIG, 0);
	if (err) {
		complain("capabilities", "%s", strerror(-err));
		return err;
	}
	/* A kernel may be built without seccomp. */
	err = seal__calls();
	if (err)
		complain("seccomp", "%s; system calls are not restricted", strerror(-err));
	return commands__serve(collector);
}

/*
 * Detaching hooks takes a grace period for each function (ftrace_shutdown() in kernel/trace/ftrace.c), also at exit.
 * A child holds the links during that time, so that the process that waits for us can continue. The process that
 * closes a link last has to wait. Therefore the child closes none until this process has closed all, which is the
 * case once the child has a different parent. The hooks do nothing meanwhile, because functions_on is not set. The
 * child keeps our stdout open, so that its reader sees end of file when the hooks are gone.
 */
static void leave_hooks_to_a_child(const struct collector *collector, int status)
{
	pid_t parent = getpid(), child;

	/* fork() copies only the calling thread: stop the other one first. */
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
	/* The reader of --probe waits for end of file. */
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
	if (env.measure)
		return measure__print(env.measured_cpu, env.llc_bytes) ? 1 : 0;
	/* Nothing reads stdin while programs load: until then the kernel ends the collector with its parent. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	collector.frequency_hz = env.frequency_hz;
	if (!env.functions)
		env.functions_options.attach = ATTACH_NOTHING;
	/* If the kernel refuses a program, the report says so for its hook; that is no error. */
	libbpf_set_print(NULL);
	raise_limits();
	raise_priority();
	if (env.watch.mode != WATCH_NOBODY && !env.watch.sockets_max)
		env.watch.sockets_max = sockets_that_fit();
	if (env.watch.mode == WATCH_ALL)
		task_offsets__read(env.watch.task_offsets);
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
		complain("bpf", "load: %s%s", strerror(-err), load_error_hint(err));
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
