/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * hooked.bpf.h - arguments and return value of a hooked function. fentry and fexit programs find the arguments in
 * ctx, followed by the return value. kprobe and kretprobe programs (`probed`) find them in the registers.
 */
#ifndef COPYSCOPE_HOOKED_BPF_H
#define COPYSCOPE_HOOKED_BPF_H

#include <vmlinux.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/*
 * fentry and fexit programs may read ctx at constant offsets only, so the compiler must not select between two offsets.
 */
#define CTX_SLOT(ctx, slot) ({ \
	__u64 value; \
	asm volatile("%0 = *(u64 *)(%1 + 8 * " #slot ")" : "=r"(value) : "r"(ctx)); \
	value; \
})
#define ARGUMENT(ctx, probed, slot, PARM) ((probed) ? PARM((struct pt_regs *)(ctx)) : CTX_SLOT(ctx, slot))

/*
 * fexit is older than bpf_get_func_ret() (5.17, commit f92c1e183604). The upper half of an int result is undefined.
 * The verifier knows `arguments` as a constant and drops the branches that are not taken.
 */
static __always_inline __u64 returned_value(void *ctx, __u8 probed, __u8 arguments)
{
	if (probed)
		return PT_REGS_RC((struct pt_regs *)ctx);
	switch (arguments) {
	case 1: return CTX_SLOT(ctx, 1);
	case 2: return CTX_SLOT(ctx, 2);
	case 3: return CTX_SLOT(ctx, 3);
	case 4: return CTX_SLOT(ctx, 4);
	case 5: return CTX_SLOT(ctx, 5);
	case 6: return CTX_SLOT(ctx, 6);
	case 7: return CTX_SLOT(ctx, 7);
	case 8: return CTX_SLOT(ctx, 8);
	}
	return 0;
}

#endif
