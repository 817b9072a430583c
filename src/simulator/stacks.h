/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_STACKS_H
#define SIMULATOR_STACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache.h"
#include "counts.h"

/*
 * Who does what: a shadow of the kernel's call stacks, kept from what is executed alone. A frame is known by the
 * address that its call stored its return address at, and its return loads it from: that survives retpolines, stacks
 * of interrupts and return addresses that nothing returns to. A function that jumps to another becomes that one. A
 * task is the kernel stack that it has (16 KiB, aligned); its side is said by a marker.
 */
enum side { SIDE_OTHER, SIDE_SENDER, SIDE_RECEIVER, SIDE_CNT };

enum block_kind {
	BLOCK_KERNEL,
	BLOCK_USER,		/* nothing of the kernel is on the stack */
	BLOCK_SYSCALL,		/* the first block of entry_SYSCALL_64 */
	BLOCK_INTERRUPT,	/* the first block of an asm_* entry: nobody called it */
	BLOCK_NMI,		/* the same of one that returns by a copy of what was stored */
	BLOCK_INTERRUPT_STUB,	/* before one of them: says which interrupt, and jumps there */
};

/* A function in a stack: its caller's node is its parent. Its counts are its own, without what it called. */
struct node {
	uint32_t parent;	/* itself: a root */
	enum side side;
	uint64_t function;	/* 0: roots (user mode), and stacks whose beginning is not known */
	bool user;		/* it is a function of user mode */
	struct counts counts;
	uint64_t executed;	/* instructions, and of a repeated one each element: the guest's time, where one takes a nanosecond */
};

struct task;

struct stacks_core {
	struct task *task;
	struct task *unknown;	/* until its first system call or switch tells */
	uint32_t node;		/* of what runs now */
	uint64_t function;	/* the same; 0: look again at the next block */
	bool entering;		/* a system call has begun, its first call will tell the task */
	bool stub;		/* an interrupt has begun, its asm_* entry comes next */
	bool storing;		/* an interrupt has begun, its first store will tell where */
	bool unread;		/* what it does counts for nobody now */
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
	uint64_t lost_returns;	/* from frames that are not there */
	uint64_t lost_calls;	/* too deep */
	bool failed;		/* no memory: what is counted is not whole */
};

int stacks__open(struct stacks *stacks, unsigned int cores);
void stacks__close(struct stacks *stacks);
/* What was seen of all tasks is outdated: their frames and sides. Nodes stay. */
void stacks__forget_tasks(struct stacks *stacks);
void stacks__zero_counts(struct stacks *stacks);
/* Of the task that runs on this core, in user mode. */
void stacks__set_side(struct stacks *stacks, unsigned int core, enum side side);

/* A block of `function` begins; `at_start`: with its first instruction. In user mode 0: it is not known which. */
void stacks__enter(struct stacks *stacks, unsigned int core, uint64_t function, enum block_kind kind,
		   bool at_start);
/* The stores and loads of instructions that move between frames; `slot` is their address. */
void stacks__call(struct stacks *stacks, unsigned int core, uint64_t slot);
void stacks__return(struct stacks *stacks, unsigned int core, uint64_t slot);
void stacks__interrupt_return(struct stacks *stacks, unsigned int core, uint64_t slot);
/* A push of __switch_to_asm: onto the stack of the task that leaves, which may not have said yet who it is. */
void stacks__leave(struct stacks *stacks, unsigned int core, uint64_t slot);
/* A pop of __switch_to_asm: from the stack of the task that runs next. */
void stacks__switch(struct stacks *stacks, unsigned int core, uint64_t slot);
/* Any other store; only where cores[core].storing. */
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
