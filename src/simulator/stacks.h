/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_STACKS_H
#define SIMULATOR_STACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache.h"
#include "counts.h"

/*
 * Shadow of the kernel's call stacks, derived only from executed instructions. A frame is identified by the address at
 * which its call stored the return address; the return loads the return address from there. This works with retpolines,
 * interrupt stacks and return addresses that are never used. A function that jumps to another one becomes that
 * function. A task is identified by its kernel stack (16 KiB, aligned), and a marker tells its side.
 */
enum side { SIDE_OTHER, SIDE_SENDER, SIDE_RECEIVER, SIDE_CNT };

enum block_kind {
	BLOCK_KERNEL,
	BLOCK_USER,		/* no kernel function is on the stack */
	BLOCK_SYSCALL,		/* first block of entry_SYSCALL_64 */
	BLOCK_INTERRUPT,	/* first block of an asm_* entry, which nothing calls */
	BLOCK_NMI,		/* as BLOCK_INTERRUPT, for an NMI, which returns through a copy of the stored registers */
	BLOCK_INTERRUPT_STUB,	/* stub that stores the interrupt number and jumps to an asm_* entry */
};

/* A function in a call stack; its parent is the caller's node. Its counts exclude the functions that it calls. */
struct node {
	uint32_t parent;	/* parent node; a root is its own parent */
	enum side side;
	uint64_t function;	/* 0: a root (user mode), or a stack with an unseen start */
	bool user;		/* a function of user mode */
	struct counts counts;
	/*
	 * executed instructions, with each element of a repeated instruction. The guest's clock advances by a
	 * nanosecond for each.
	 */
	uint64_t executed;
};

struct task;

struct stacks_core {
	struct task *task;
	struct task *unknown;	/* used until the first system call or task switch identifies the task */
	uint32_t node;		/* node of the running function */
	uint64_t function;	/* address of the running function; 0: determine it at the next block */
	bool entering;		/* a system call has started; its first call identifies the task */
	bool stub;		/* an interrupt has started; its asm_* entry follows */
	bool storing;		/* an interrupt has started; its first store tells its stack address */
	bool unread;		/* this core is not being counted now */
};

struct stacks {
	struct stacks_core cores[CORES_MAX];
	struct node *nodes;
	uint32_t node_count, node_room;
	uint32_t *children;	/* hash table of nodes by parent and function; 0: free */
	uint32_t children_room;
	struct task **tasks;	/* hash table by stack */
	uint32_t task_count, task_room;
	struct counts unread;
	uint64_t lost_returns;	/* returns without a matching frame */
	uint64_t lost_calls;	/* calls beyond FRAMES_MAX */
	bool failed;		/* out of memory: the counts are incomplete */
};

int stacks__open(struct stacks *stacks, unsigned int cores);
void stacks__close(struct stacks *stacks);
/* Discard the frames and sides of all tasks, which are outdated. Nodes stay. */
void stacks__forget_tasks(struct stacks *stacks);
void stacks__zero_counts(struct stacks *stacks);
/* Set the side of the task that runs on this core, in user mode. */
void stacks__set_side(struct stacks *stacks, unsigned int core, enum side side);

/* A block of `function` starts; at_start: at the function's first instruction. In user mode 0 means unknown. */
void stacks__enter(struct stacks *stacks, unsigned int core, uint64_t function, enum block_kind kind,
		   bool at_start);
/* Stores and loads of instructions that enter or leave a function; `slot` is their address. */
void stacks__call(struct stacks *stacks, unsigned int core, uint64_t slot);
void stacks__return(struct stacks *stacks, unsigned int core, uint64_t slot);
void stacks__interrupt_return(struct stacks *stacks, unsigned int core, uint64_t slot);
/* A push in __switch_to_asm, to the stack of the task that is switched out. The task may not be identified yet. */
void stacks__leave(struct stacks *stacks, unsigned int core, uint64_t slot);
/* A pop in __switch_to_asm, from the stack of the task that is switched in. */
void stacks__switch(struct stacks *stacks, unsigned int core, uint64_t slot);
/* Any other store; needed only while cores[core].storing is set. */
void stacks__store(struct stacks *stacks, unsigned int core, uint64_t address);

static inline struct counts *stacks__counts(struct stacks *stacks, unsigned int core)
{
	return stacks->cores[core].unread ? &stacks->unread : &stacks->nodes[stacks->cores[core].node].counts;
}

static inline bool node__is_root(const struct stacks *stacks, uint32_t index)
{
	return stacks->nodes[index].parent == index;
}

#endif
