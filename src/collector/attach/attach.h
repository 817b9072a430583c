/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * attach.h - attaches programs to one kernel function, with fentry and fexit, kprobe.multi, or kprobe and kretprobe; or
 * to its call sites.
 */
#ifndef COLLECTOR_ATTACH_H
#define COLLECTOR_ATTACH_H

#include <stdbool.h>

#include <jansson.h>
#include <linux/types.h>

#include "call_sites.h"

struct bpf_link;
struct bpf_program;
struct btf;
struct ksyms;

/* Methods of hooking a function, in the order in which they are tried. */
enum attach_way { WAY_FENTRY, WAY_MULTI, WAY_KPROBE };
#define WAY_CNT (WAY_KPROBE + 1)

/* Methods by which functions may be hooked, one bit each. */
enum attach_wish {
	ATTACH_NOTHING,
	ATTACH_FENTRY = 1 << WAY_FENTRY,
	ATTACH_MULTI = 1 << WAY_MULTI,
	ATTACH_KPROBE = 1 << WAY_KPROBE,
	ATTACH_ANY = ATTACH_FENTRY | ATTACH_MULTI | ATTACH_KPROBE,
};

enum attach_state {
	STATE_UNUSED,
	STATE_READY,
	STATE_ATTACHED,
	STATE_MISSING,
	STATE_REFUSED,
};
#define STATE_CNT (STATE_REFUSED + 1)
extern const char *const state_names[STATE_CNT];

#define NO_BTF "/sys/kernel/btf/vmlinux: missing: this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"

/* A hooked function. A zero-initialised struct is unused. */
struct attach {
	enum attach_state state;
	char symbol[SYMBOL_MAX];
	char reason[224];
	enum attach_way way;
	/* Set of the methods that are left to try if the kernel refuses this method, one bit each. */
	unsigned int next;
	/*
	 * Number of call sites. If it is not 0, kprobes are attached to the instructions that call the function and
	 * to those after them, instead of to the function.
	 */
	int sites_cnt;
	struct call_site sites[CALL_SITES_MAX];
	/* Number of arguments, from BTF. */
	unsigned int arguments;
	/* NULL, or the reason why kprobes cannot be tried. */
	const char *no_kprobes;
	struct bpf_program *enter, *leave;
	struct bpf_link *links[2 * CALL_SITES_MAX];
	int links_cnt;
};

/* Facilities of this kernel, detected once. */
struct attach_sources {
	const struct btf *btf;
	const struct ksyms *ksyms;
	/* NULL, or the reason why there are no kprobes. */
	const char *no_kprobes;
	/* The kernel has kprobe.multi. */
	bool multi;
};

void attach__detect(struct attach_sources *sources, const struct btf *btf);

/* Return false if it is known that the function cannot be hooked. */
static inline bool attach__works(const struct attach *attach)
{
	return attach->state == STATE_READY || attach->state == STATE_ATTACHED;
}

/* Return true if the program's ctx holds registers instead of arguments. */
static inline bool attach__is_probed(const struct attach *attach)
{
	return attach->way != WAY_FENTRY;
}

/*
 * Find the first candidate (a|b|c) that can be hooked by one of the methods of `wish`, and set READY. If there is none,
 * or if its arguments differ from hooks.h, set MISSING and the reason.
 */
void attach__find(struct attach *attach, const char *candidates, const char *arguments,
		  const struct attach_sources *sources, enum attach_wish wish);
/*
 * Find the calls in `callers` to `callees` (both a|b|c), and set READY. If there is none, set MISSING and the reason.
 */
void attach__find_calls(struct attach *attach, const char *callers, const char *callees, const char *arguments,
			const struct attach_sources *sources);
#define NOT_ASKED_FOR "not asked for"
#define NOTHING_PASSES "none of this traffic's bytes pass it"
/* Set the state UNUSED without searching. `why` is one of the two reasons above. */
void attach__skip(struct attach *attach, const char *candidates, const char *why);
/* Return the record's name for the method by which a READY function is hooked. */
const char *attach__way_name(const struct attach *attach);
/*
 * Prepare the programs for the function's entry and exit before they are loaded. A program is NULL if that end of the
 * function is not hooked. Return 0 or -errno.
 */
int attach__prepare(struct attach *attach, struct bpf_program *enter, struct bpf_program *leave);
/* Describe the error of a kernel that refused a program. */
const char *attach__error_text(int err);
/*
 * Handle a program that the kernel refused. Switch to the next method and set READY, or set REFUSED. `doing` is the
 * step that failed, for the message: "load: " or "attach: ".
 */
void attach__refuse(struct attach *attach, const char *doing, int err);
/* Attach both programs or none. Return 0 or -errno. */
int attach__attach(struct attach *attach);
int attach__detach(struct attach *attach);

/*
 * Report how often the kernel skipped a program. Sets loss["recursion_<id>"] to the runs skipped because the program
 * was already running on this CPU, or to {"count": null, "reason"} if the kernel does not count them. Sets nothing
 * for a program that is not loaded.
 */
void attach__add_recursion(json_t *loss, const char *id, const struct bpf_program *program);
/*
 * Like attach__add_recursion(), for both programs of a function. For kprobes it also sets loss["missed_<id>"]. Both
 * values exist only while the function is attached.
 */
void attach__add_misses(json_t *loss, const char *id, const struct attach *function);

#endif
