/* SPDX-License-Identifier: GPL-2.0 */
/* attach.h - hooking one kernel function: by fentry and fexit, else by kprobe and kretprobe, or at its calls. */
#ifndef COLLECTOR_ATTACH_H
#define COLLECTOR_ATTACH_H

#include <stdbool.h>

#include <linux/types.h>

#include "call_sites.h"

struct bpf_link;
struct bpf_program;
struct btf;
struct ksyms;

/* Which way to hook functions; ATTACH_ANY is fentry where the kernel takes it, else kprobe. */
enum attach_wish { ATTACH_NOTHING, ATTACH_ANY, ATTACH_FENTRY, ATTACH_KPROBE };

enum attach_state {
	STATE_UNUSED,
	STATE_READY,
	STATE_ATTACHED,
	STATE_MISSING,
	STATE_REFUSED,
};
#define STATE_CNT (STATE_REFUSED + 1)
extern const char *const state_names[STATE_CNT];

#define SYMBOL_MAX 128

/* One function; zero-initialised it is unused. */
struct attach {
	enum attach_state state;
	char symbol[SYMBOL_MAX];
	char reason[224];
	/* By kprobe and kretprobe, not by fentry and fexit. */
	bool probed;
	/* Not itself, but the instructions that call it and those after them: by kprobe. 0 for a function that is hooked. */
	int sites_cnt;
	struct call_site sites[CALL_SITES_MAX];
	/* What it has by BTF. */
	unsigned int arguments;
	/* What follows when fentry is refused: a kprobe, or (if not NULL) the reason why there is none. */
	bool kprobe_next;
	const char *no_kprobes;
	struct bpf_program *enter, *leave;
	struct bpf_link *links[2 * CALL_SITES_MAX];
	int links_cnt;
	/* Calls that its kprobes did not see, of all that were detached; known: the kernel says so (6.7 and newer). */
	__u64 missed;
	bool missed_known;
};

/* What this kernel has, looked up once. */
struct attach_sources {
	const struct btf *btf;
	const struct ksyms *ksyms;
	/* NULL, or why there are no kprobes. */
	const char *no_kprobes;
};

const char *attach__no_kprobes(void);
/* READY with the first of the candidates (a|b|c) that can be hooked as wished; else MISSING with the reason. */
void attach__find(struct attach *attach, const char *candidates, const struct attach_sources *sources,
		  enum attach_wish wish);
/* READY with the calls in `callers` to one of `callees` (a|b|c); else MISSING with the reason. */
void attach__find_calls(struct attach *attach, const char *callers, const char *callees,
			const struct attach_sources *sources);
/* The way that a READY one is hooked, as the record calls it. */
const char *attach__how(const struct attach *attach);
/* Before load. NULL for an end of the function that is not hooked. Returns 0 or -errno. */
int attach__prepare(struct attach *attach, struct bpf_program *enter, struct bpf_program *leave);
/* The kernel did not take it (doing: "load: ", "attach: "): by kprobe next (still READY), or REFUSED. */
void attach__refuse(struct attach *attach, const char *doing, int err);
/* Both ends or none. Returns 0 or -errno. */
int attach__attach(struct attach *attach);
int attach__detach(struct attach *attach);

#endif
