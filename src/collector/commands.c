// SPDX-License-Identifier: GPL-2.0-only
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <bpf/libbpf.h>
#include <copyscope.skel.h>
#include <sampling.skel.h>

#include "abi.h"
#include "attach/tracepoints.h"
#include "commands.h"
#include "instruments/probes.h"
#include "instruments/programs.h"
#include "instruments/watch.h"
#include "kernel/clock.h"
#include "kernel/core_pmus.h"
#include "kernel/ksyms.h"
#include "kernel/privileges.h"
#include "lines.h"
#include "report/cells.h"
#include "report/maps.h"
#include "report/message.h"
#include "report/names.h"
#include "sampling/sampler.h"
#include "sampling/stacks.h"

/*
 * Maximum number of samples that may stay in their map after `close` or `volume`. Each sample may be a distinct stack,
 * and most of the map must be free for the next samples.
 */
#define SAMPLES_KEPT (STACKS_MAX / 8)

/* Upper limit of /proc/sys/kernel/pid_max on 64-bit machines (include/linux/threads.h). */
#define PID_MAX (1 << 22)

static int refuse(const char *command, const char *reason)
{
	complain(command, "%s", reason);
	return print_json_line(json_pack("{s:s, s:s, s:s}", "event", "error", "command", command, "message", reason));
}

/*
 * Parse "SIDE NUMBER". Return the side, or SIDE_TARGETS if its name is unknown. Return a negative number unless a
 * number from 1 to max follows.
 */
static int read_side(const char *arguments, unsigned long max, unsigned long *number)
{
	size_t length = strcspn(arguments, " ");
	int side = 0;

	if (!lines__number(arguments + length + strspn(arguments + length, " "), max, number))
		return -EINVAL;
	while (side < SIDE_TARGETS && (strlen(side_names[side]) != length || strncmp(arguments, side_names[side], length)))
		side++;
	return side;
}

static int do_target(struct collector *collector, const char *arguments)
{
	struct copyscope *skel = probes__skeleton(collector->probes);
	unsigned long pid;
	int side = read_side(arguments, PID_MAX, &pid);

	if (side < 0)
		return refuse("target", "expected: sender|receiver|target PID");
	if (side == SIDE_TARGETS)
		return refuse("target", "unknown side: choose sender or receiver, or with --watch target");
	if (collector->watch.mode == WATCH_NOBODY)
		/* Both BPF objects contain a copy of the globals of target.bpf.c. */
		skel->bss->target_tgid[side] = collector->sampler_skel->bss->target_tgid[side] = pid;
	else
		watch__add(skel, pid);
	return print_json_line(json_pack("{s:s, s:s, s:i}", "event", "target", "side", side_names[side], "pid", (int)pid));
}

/*
 * The namespace is passed as a number, because the collector may not inspect other users' processes (privileges.h).
 */
static int do_netns(struct collector *collector, const char *arguments)
{
	unsigned long inode;
	int side = read_side(arguments, UINT_MAX, &inode);

	if (side < 0)
		return refuse("netns", "expected: sender|receiver INODE");
	if (side == SIDE_TARGETS)
		return refuse("netns", "unknown side: choose sender or receiver");
	probes__skeleton(collector->probes)->bss->traffic_netns[side] = inode;
	return print_json_line(json_pack("{s:s, s:s}", "event", "netns", "side", side_names[side]));
}

/*
 * Pass the addresses of the named functions to the sampler. The names are separated by spaces. Names that the kernel
 * lacks are skipped.
 */
static void learn_softirq_functions(struct collector *collector, const char *names)
{
	char list[LINE_MAX_BYTES], *save = NULL, *name;
	struct sampling *skel = collector->sampler_skel;
	__u32 count = 0;

	snprintf(list, sizeof(list), "%s", names);
	for (name = strtok_r(list, " ", &save); name && count < SOFTIRQ_FUNCTIONS_MAX; name = strtok_r(NULL, " ", &save)) {
		uint64_t begin, end;

		if (!ksyms__range(collector->ksyms, name, &begin, &end))
			continue;
		skel->bss->softirq_begin[count] = begin;
		skel->bss->softirq_end[count++] = end;
	}
	skel->bss->softirq_function_count = count;
}

static int do_symbols(struct collector *collector, const char *arguments)
{
	int err;

	ksyms__free(collector->ksyms);
	collector->ksyms = NULL;
	err = ksyms__load(&collector->ksyms);
	if (err == -EPERM)
		return refuse("symbols", "/proc/kallsyms has no addresses: set kernel.kptr_restrict to 0 or 1 and run as root with CAP_SYSLOG");
	if (err == -EACCES)
		return refuse("symbols", "/proc/kallsyms: Permission denied by a sandbox (systemd: ProtectKernelTunables=)");
	if (err)
		return refuse("symbols", strerror(-err));
	watch__learn(probes__skeleton(collector->probes), collector->ksyms);
	learn_softirq_functions(collector, arguments);
	/* Without the lengths, an address in a trampoline would be attributed to the program before it. */
	err = ksyms__bound_programs(collector->ksyms);
	if (err)
		complain("symbols", "cannot read the lengths of BPF programs: %s", strerror(-err));
	err = privileges__drop(true);
	if (err)
		return refuse("symbols", strerror(-err));
	return print_json_line(json_pack("{s:s, s:i}", "event", "symbols", "count", ksyms__count(collector->ksyms)));
}

/*
 * Function hooks are attached once and stay to the end, because detaching one waits for every task (ftrace_shutdown()
 * in kernel/trace/ftrace.c). They count only while this function has switched counting on. Calls that began earlier are
 * not counted.
 */
static void count_functions(struct collector *collector, bool on)
{
	probes__skeleton(collector->probes)->bss->functions_on = on;
}

static bool is_open(const struct collector *collector, const char *instrument)
{
	char name[64];

	snprintf(name, sizeof(name), ",%s,", instrument);
	return strstr(collector->open, name);
}

static void note_open(struct collector *collector, const char *instrument)
{
	size_t used = strlen(collector->open);

	snprintf(collector->open + used, sizeof(collector->open) - used, "%s%s,", used ? "" : ",", instrument);
}

/* Switch sampling on or off, and with it the hook that determines packet owners. */
static void note_sampling(struct collector *collector, bool on)
{
	collector->sampling = on;
	probes__skeleton(collector->probes)->bss->packets_wanted = on;
}

static int close_all(struct collector *collector)
{
	bool watch = is_open(collector, "watch"), volume = is_open(collector, "volume");
	int err = 0;

	snprintf(collector->open, sizeof(collector->open), "%s%s%s", watch || volume ? "," : "", watch ? "watch," : "",
		 volume ? "volume," : "");
	count_functions(collector, false);
	collector->hooking = false;
	if (collector->sampling) {
		err = sampler__disable(collector->sampler);
		note_sampling(collector, false);
	}
	return probes__detach(collector->probes) ?: err;
}

static int open_one(struct collector *collector, const char *instrument)
{
	int err;

	if (!strcmp(instrument, "functions") || !strcmp(instrument, UNARMED)) {
		collector->hooking = strcmp(instrument, UNARMED);
		return probes__hook(collector->probes, collector->hooking);
	}
	if (!strcmp(instrument, SPLICES)) {
		/* `volume`, which the command names next, then attaches the hook at once. */
		probes__skeleton(collector->probes)->bss->splices_seen = 1;
		return 0;
	}
	if (strcmp(instrument, "sampler"))
		return probes__attach(collector->probes, instrument);
	if (!collector->ksyms)
		return -EAGAIN;
	/* Attach the packet-owner hook before sampling starts, so that it is known to work. */
	err = probes__attach(collector->probes, "sampler");
	if (!err && !collector->sampler)
		err = sampler__open(&collector->sampler, collector->sampler_skel, collector->frequency_hz);
	if (err)
		return err;
	note_sampling(collector, true);
	return sampler__enable(collector->sampler);
}

/* Bytes that the watched program has moved so far, and the time of this reading. */
static json_t *volume_json(struct collector *collector)
{
	json_t *volume = watch__json(probes__skeleton(collector->probes), &collector->watched);

	json_object_set_new(volume, "counts_taken", json_boolean(probes__counts_all_taken(collector->probes)));
	json_object_set_new(volume, "t_ns", json_integer(now_ns()));
	return volume;
}

/*
 * Add the volume to the answer. A watched program continues while hooks are attached and detached, so the volume
 * belongs to this moment.
 */
static void add_volume(struct collector *collector, json_t *answer)
{
	if (collector->watch.mode != WATCH_NOBODY)
		json_object_set_new(answer, "volume", volume_json(collector));
}

static int do_open(struct collector *collector, const char *arguments)
{
	char list[LINE_MAX_BYTES], *save = NULL, *instrument;
	json_int_t start = now_ns();
	json_t *answer;
	int err;

	/* Check all names before attaching anything: either all instruments are opened or none. */
	snprintf(list, sizeof(list), "%s", arguments);
	for (instrument = strtok_r(list, ",", &save); instrument; instrument = strtok_r(NULL, ",", &save))
		if (!tracepoints__is_instrument(instrument, collector->watch.mode != WATCH_NOBODY))
			return refuse(instrument, "unknown instrument, or not available in this mode; collector --help lists them");
	snprintf(list, sizeof(list), "%s", arguments);
	for (instrument = strtok_r(list, ",", &save); instrument; instrument = strtok_r(NULL, ",", &save)) {
		/*
		 * An instrument that is attached twice would be detached only once, and one of its links would stay.
		 */
		if (is_open(collector, instrument))
			return refuse(instrument, "already open; close it first");
		err = open_one(collector, instrument);
		if (err) {
			close_all(collector);
			return refuse(instrument, err == -EAGAIN ? "symbols are not loaded; send the command symbols first" : strerror(-err));
		}
		note_open(collector, instrument);
	}
	answer = json_pack("{s:s, s:I, s:I}", "event", "opened", "t_ns", (json_int_t)now_ns(), "took_ns", (json_int_t)now_ns() - start);
	add_volume(collector, answer);
	count_functions(collector, collector->hooking);
	return print_json_line(answer);
}

/*
 * Read the sampled stacks and remove them from their map, if more than `kept` samples may be in it. Walking all
 * buckets of the map takes 0.6 ms even if it is almost empty, and meanwhile a watched program may wait for this CPU.
 */
static void drain_samples(struct collector *collector, uint64_t kept)
{
	const struct sampling *skel = collector->sampler_skel;
	uint64_t taken = skel->bss->samples_taken;
	int err;

	if (!collector->sampler || taken - collector->drained <= kept)
		return;
	err = stacks__drain(collector->stacks, bpf_map__fd(skel->maps.stacks), collector->ksyms);
	if (err)
		maps__note_unread(err);
	collector->drained = taken;
}

static int do_close(struct collector *collector, const char *arguments)
{
	json_int_t start = now_ns();
	bool hooking = collector->hooking;
	json_t *answer = json_object();
	int err;

	(void)arguments;
	count_functions(collector, false);
	/* Function hooks have counted until now, so the volume must be read before they are detached. */
	if (hooking)
		add_volume(collector, answer);
	err = close_all(collector);
	if (!hooking)
		add_volume(collector, answer);
	drain_samples(collector, SAMPLES_KEPT);
	if (err) {
		json_decref(answer);
		return refuse("close", strerror(-err));
	}
	json_object_update_new(answer, json_pack("{s:s, s:I, s:I}", "event", "closed", "t_ns", (json_int_t)now_ns(), "took_ns",
						 (json_int_t)now_ns() - start));
	return print_json_line(answer);
}

static int do_gate(struct collector *collector, const char *arguments)
{
	unsigned long one_in;
	int err;

	if (collector->hooking)
		return refuse("gate", "function hooks are counting; close them first");
	if (!lines__number(arguments, GATE_MAX, &one_in))
		return refuse("gate", "expected: N, from 1 to 1000000");
	err = probes__gate_functions(collector->probes, one_in);
	return err ? refuse("gate", strerror(-err)) : print_json_line(json_pack("{s:s, s:i}", "event", "gate", "one_in", (int)one_in));
}

static int do_volume(struct collector *collector, const char *arguments)
{
	json_t *volume = volume_json(collector);

	(void)arguments;
	drain_samples(collector, SAMPLES_KEPT);
	json_object_set_new(volume, "event", json_string("volume"));
	return print_json_line(volume);
}

static int do_sockets(struct collector *collector, const char *arguments)
{
	(void)arguments;
	return print_json_line(json_pack("{s:s, s:o, s:b}", "event", "sockets",
			     "sockets", probes__sockets_json(collector->probes),
			     "counts_taken", probes__counts_all_taken(collector->probes)));
}

static int do_peers(struct collector *collector, const char *arguments)
{
	(void)arguments;
	return print_json_line(json_pack("{s:s, s:o}", "event", "peers", "peers", watch__peers_json(probes__skeleton(collector->probes))));
}

static int do_programs(struct collector *collector, const char *arguments)
{
	(void)arguments;
	if (collector->watch.mode != WATCH_ALL)
		return refuse("programs", "they are counted only with --all");
	return print_json_line(json_pack("{s:s, s:o}", "event", "programs", "rows", programs__json(probes__skeleton(collector->probes))));
}

static json_t *samples_json(struct collector *collector, bool only_new)
{
	drain_samples(collector, 0);
	if (!collector->ksyms)
		return json_array();
	return stacks__json(collector->stacks, collector->ksyms, collector->sampler, only_new);
}

/* Keep sampling events off CPUs: an interrupt there would disturb programs that have these CPUs for themselves. */
static int do_spare(struct collector *collector, const char *arguments)
{
	int err = collector->sampling ? -EBUSY : core_pmus__spare(arguments);

	if (!err && collector->sampler)
		err = sampler__reopen(collector->sampler);
	return err ? refuse("spare", strerror(-err)) : print_json_line(json_pack("{s:s, s:s}", "event", "spared", "cpus", arguments));
}

/*
 * For a live view: print the samples of the segments that were closed since the previous call. "samples forget" is
 * for a view of unlimited duration, because the samples kept for the final report would grow.
 */
static int do_samples(struct collector *collector, const char *arguments)
{
	json_t *samples;

	if (collector->sampling)
		return refuse("samples", "the sampler is open; close it first");
	samples = samples_json(collector, true);
	if (!strcmp(arguments, "forget"))
		stacks__forget(collector->stacks);
	return print_json_line(json_pack("{s:s, s:o, s:o}", "event", "samples", "samples", samples, "loss", probes__loss_json(collector->probes)));
}

/* Print the counts of the function hooks so far. */
static int do_functions(struct collector *collector, const char *arguments)
{
	(void)arguments;
	return print_json_line(json_pack("{s:s, s:o}", "event", "functions", "functions", probes__functions_json(collector->probes)));
}

static int do_report(struct collector *collector, const char *arguments)
{
	json_t *sampler = collector->sampler ? sampler__json(collector->sampler) : json_null();
	struct copyscope *skel = probes__skeleton(collector->probes);
	json_t *report;

	(void)arguments;
	report = json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "event", "report", "abi_version", ABI_VERSION,
			   "hooks", probes__hooks_json(collector->probes), "sampler", sampler,
			   "samples", samples_json(collector, false), "bytes", cells__bytes_json(skel),
			   "calls", cells__calls_json(skel),
			   "functions", probes__functions_json(collector->probes));
	json_object_set_new(report, "loss", probes__loss_json(collector->probes));
	return print_json_line(report);
}

static const struct command {
	const char *name;
	int (*run)(struct collector *collector, const char *arguments);
	bool last;
} commands[] = {
	{ "target", do_target, false },
	{ "netns", do_netns, false },
	{ "symbols", do_symbols, false },
	{ "open", do_open, false },
	{ "close", do_close, false },
	{ "volume", do_volume, false },
	{ "sockets", do_sockets, false },
	{ "peers", do_peers, false },
	{ "programs", do_programs, false },
	{ "samples", do_samples, false },
	{ "spare", do_spare, false },
	{ "functions", do_functions, false },
	{ "gate", do_gate, false },
	{ "report", do_report, true },
};

static int run_command(struct collector *collector, char *line, bool *done)
{
	size_t length = strcspn(line, " ");

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		const struct command *command = &commands[i];

		if (strlen(command->name) != length || strncmp(command->name, line, length))
			continue;
		*done = command->last;
		return command->run(collector, line + length + strspn(line + length, " "));
	}
	line[length] = '\0';
	return refuse(line, "no such command");
}

static int run_next_line(struct collector *collector, bool *done)
{
	char line[LINE_MAX_BYTES];

	switch (lines__next(stdin, line)) {
	case LINE_END:
		*done = true;
		return 0;
	case LINE_TOO_LONG:
		return refuse("line", "too long: at most 4095 bytes");
	case LINE_NO_TEXT:
		return refuse("line", "not printable ASCII");
	default:
		return run_command(collector, line, done);
	}
}

int commands__serve(struct collector *collector)
{
	bool done = false;
	int err;

	err = print_json_line(json_pack("{s:s, s:i, s:o}", "event", "ready", "pid", (int)getpid(), "hooks",
			    probes__hooks_json(collector->probes)));
	while (!err && !done)
		err = run_next_line(collector, &done);
	return err;
}

int commands__probe(struct collector *collector)
{
	int err = sampler__open(&collector->sampler, collector->sampler_skel, collector->frequency_hz);
	json_t *sampler = err ? json_null() : sampler__json(collector->sampler);

	probes__attach(collector->probes, "bytes");
	probes__attach(collector->probes, "calls");
	probes__attach(collector->probes, "sampler");
	probes__hook(collector->probes, false);
	probes__detach(collector->probes);
	return print_json_line(json_pack("{s:i, s:o, s:o, s:o}", "abi_version", ABI_VERSION,
			     "hooks", probes__hooks_json(collector->probes), "sampler", sampler,
			     "functions", probes__functions_json(collector->probes)));
}

int commands__load(struct collector *collector)
{
	return print_json_line(json_pack("{s:i, s:o}", "abi_version", ABI_VERSION,
			     "hooks", probes__hooks_json(collector->probes)));
}
