// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stacks.h"

#define STACK_SHIFT 14		/* THREAD_SIZE of x86-64, and its alignment */
#define FRAMES_MAX 192
#define NO_SLOT UINT64_MAX	/* no return uses this slot */

/* The first nodes are roots, in the order of sides: three for user mode, then three for unknown stacks. */
#define FIRST_UNKNOWN SIDE_CNT
#define FIRST_FREE (2 * SIDE_CNT)

struct frame {
	uint64_t slot;		/* address of the return address; for an interrupt its first store, or 0 before that */
	uint64_t function;	/* 0: unknown until the next block */
	uint32_t caller, node;
	bool interrupt;
};

struct task {
	uint64_t stack;
	enum side side;
	unsigned int depth;
	struct frame frames[FRAMES_MAX];
};

static uint64_t mix(uint64_t value)
{
	value *= 0x9e3779b97f4a7c15ull;
	return value ^ value >> 29;
}

static bool on_same_stack(uint64_t left, uint64_t right)
{
	return left >> STACK_SHIFT == right >> STACK_SHIFT;
}

static int grow_nodes(struct stacks *stacks)
{
	uint32_t room = stacks->node_room ? 2 * stacks->node_room : 4096;
	struct node *nodes = realloc(stacks->nodes, room * sizeof(*nodes));
	uint32_t *children;

	if (!nodes)
		return -ENOMEM;
	stacks->nodes = nodes;
	children = calloc(2 * room, sizeof(*children));
	if (!children)
		return -ENOMEM;
	free(stacks->children);
	stacks->children = children;
	stacks->children_room = 2 * room;
	stacks->node_room = room;
	for (uint32_t i = FIRST_FREE; i < stacks->node_count; i++) {
		uint64_t at = mix(nodes[i].function ^ mix(nodes[i].parent));

		while (children[at % stacks->children_room])
			at++;
		children[at % stacks->children_room] = i;
	}
	return 0;
}

/* Return the node of a called function. If out of memory, the call counts for the caller. */
static uint32_t child_of(struct stacks *stacks, uint32_t parent, uint64_t function)
{
	uint64_t at = mix(function ^ mix(parent));
	struct node *node;
	uint32_t index;

	for (; (index = stacks->children[at % stacks->children_room]); at++)
		if (stacks->nodes[index].parent == parent && stacks->nodes[index].function == function)
			return index;
	if (stacks->node_count == stacks->node_room) {
		if (grow_nodes(stacks)) {
			stacks->failed = true;
			return parent;
		}
		return child_of(stacks, parent, function);
	}
	index = stacks->node_count++;
	node = &stacks->nodes[index];
	*node = (struct node){ .parent = parent, .side = stacks->nodes[parent].side, .function = function };
	stacks->children[at % stacks->children_room] = index;
	return index;
}

static int grow_tasks(struct stacks *stacks)
{
	uint32_t room = stacks->task_room ? 2 * stacks->task_room : 64;
	struct task **tasks = calloc(room, sizeof(*tasks));

	if (!tasks)
		return -ENOMEM;
	for (uint32_t i = 0; i < stacks->task_room; i++) {
		uint64_t at;

		if (!stacks->tasks[i])
			continue;
		at = mix(stacks->tasks[i]->stack);
		while (tasks[at % room])
			at++;
		tasks[at % room] = stacks->tasks[i];
	}
	free(stacks->tasks);
	stacks->tasks = tasks;
	stacks->task_room = room;
	return 0;
}

/* Return the task of a stack, or `otherwise` if out of memory. */
static struct task *task_of(struct stacks *stacks, uint64_t stack, struct task *otherwise)
{
	uint64_t at = mix(stack);
	struct task *task;

	for (; (task = stacks->tasks[at % stacks->task_room]); at++)
		if (task->stack == stack)
			return task;
	if (2 * stacks->task_count >= stacks->task_room) {
		if (grow_tasks(stacks)) {
			stacks->failed = true;
			return otherwise;
		}
		return task_of(stacks, stack, otherwise);
	}
	task = calloc(1, sizeof(*task));
	if (!task) {
		stacks->failed = true;
		return otherwise;
	}
	task->stack = stack;
	stacks->tasks[at % stacks->task_room] = task;
	stacks->task_count++;
	return task;
}

int stacks__open(struct stacks *stacks, unsigned int cores)
{
	int err;

	*stacks = (struct stacks){ 0 };
	err = grow_nodes(stacks);
	if (!err)
		err = grow_tasks(stacks);
	if (err)
		goto cleanup;
	for (uint32_t i = 0; i < FIRST_FREE; i++)
		stacks->nodes[i] = (struct node){ .parent = i, .side = i % SIDE_CNT };
	stacks->node_count = FIRST_FREE;
	for (unsigned int core = 0; core < cores; core++) {
		struct task *unknown = calloc(1, sizeof(*unknown));

		err = unknown ? 0 : -ENOMEM;
		if (err)
			goto cleanup;
		stacks->cores[core].unknown = stacks->cores[core].task = unknown;
	}
	return 0;
cleanup:
	stacks__close(stacks);
	return err;
}

void stacks__close(struct stacks *stacks)
{
	for (unsigned int core = 0; core < CORES_MAX; core++)
		free(stacks->cores[core].unknown);
	for (uint32_t i = 0; i < stacks->task_room && stacks->tasks; i++)
		free(stacks->tasks[i]);
	free(stacks->tasks);
	free(stacks->children);
	free(stacks->nodes);
	*stacks = (struct stacks){ 0 };
}

static void forget(struct task *task)
{
	task->depth = 0;
	task->side = SIDE_OTHER;
}

void stacks__forget_tasks(struct stacks *stacks)
{
	for (uint32_t i = 0; i < stacks->task_room; i++)
		if (stacks->tasks[i])
			forget(stacks->tasks[i]);
	for (unsigned int core = 0; core < CORES_MAX; core++) {
		struct stacks_core *here = &stacks->cores[core];

		if (here->unknown)
			forget(here->unknown);
		*here = (struct stacks_core){ .unknown = here->unknown, .task = here->unknown };
	}
}

void stacks__zero_counts(struct stacks *stacks)
{
	for (uint32_t i = 0; i < stacks->node_count; i++) {
		memset(&stacks->nodes[i].counts, 0, sizeof(stacks->nodes[i].counts));
		stacks->nodes[i].executed = 0;
	}
	stacks->lost_returns = 0;
	stacks->lost_calls = 0;
}

void stacks__set_side(struct stacks *stacks, unsigned int core, enum side side)
{
	stacks->cores[core].task->side = side;
	stacks->cores[core].node = side;
}

static void push(struct stacks *stacks, unsigned int core, struct frame frame)
{
	struct task *task = stacks->cores[core].task;

	if (task->depth == FRAMES_MAX)
		stacks->lost_calls++;
	else
		task->frames[task->depth++] = frame;
	stacks->cores[core].function = 0;
}

/* The top frame has a different function than before: the function was just called, or jumped to. */
static void find_node(struct stacks *stacks, unsigned int core, uint64_t function, bool at_start)
{
	struct stacks_core *here = &stacks->cores[core];
	struct frame *top = &here->task->frames[here->task->depth - 1];

	if (top->function != function) {
		top->function = function;
		top->node = child_of(stacks, top->caller, function);
		here->node = top->node;
		stacks__counts(stacks, core)->of[COUNT_calls] += at_start;
	}
	here->node = top->node;
	here->function = function;
}

/* Return the parent of an interrupt's node. For user mode this is the root, whichever function was interrupted. */
static uint32_t interrupted_parent(const struct stacks *stacks, uint32_t index)
{
	const struct node *node = &stacks->nodes[index];

	return node->user ? node->parent : index;
}

void stacks__enter(struct stacks *stacks, unsigned int core, uint64_t function, enum block_kind kind,
		   bool at_start)
{
	struct stacks_core *here = &stacks->cores[core];
	struct task *task = here->task;

	switch (kind) {
	case BLOCK_USER:
		task->depth = 0;
		here->node = task->side;
		here->function = 0;
		if (function) {
			here->node = child_of(stacks, task->side, function);
			stacks->nodes[here->node].user = !node__is_root(stacks, here->node);
		}
		return;
	case BLOCK_SYSCALL:
		task->depth = 0;
		push(stacks, core, (struct frame){ .slot = NO_SLOT, .caller = task->side });
		here->entering = true;
		break;
	case BLOCK_INTERRUPT:
		if (here->stub) {
			here->stub = false;
			break;
		}
		/* fall through */
	case BLOCK_INTERRUPT_STUB:
	case BLOCK_NMI:
		here->stub = kind == BLOCK_INTERRUPT_STUB;
		/* The parent is the node of the interrupted code: user mode, the last frame, or unknown code. */
		push(stacks, core, (struct frame){ .caller = interrupted_parent(stacks, here->node), .interrupt = true });
		/* An NMI needs no stack address, because its own return is the next iret. */
		here->storing = kind != BLOCK_NMI;
		break;
	case BLOCK_KERNEL:
		if (here->function == function)
			return;
		if (!task->depth)
			push(stacks, core, (struct frame){ .slot = NO_SLOT, .caller = FIRST_UNKNOWN + task->side });
		break;
	}
	find_node(stacks, core, function, at_start);
}

/* The running task has been identified: it takes over the frames recorded since it was switched in. */
static void move_frames(struct task *unknown, struct task *task)
{
	task->side = unknown->side;
	task->depth = unknown->depth;
	memcpy(task->frames, unknown->frames, sizeof(task->frames));
	forget(unknown);
}

static void identify_task(struct stacks *stacks, unsigned int core, uint64_t slot)
{
	struct stacks_core *here = &stacks->cores[core];
	struct task *before = here->task;
	struct task *task = task_of(stacks, slot >> STACK_SHIFT, before);

	here->entering = false;
	if (task == before)
		return;
	here->task = task;
	if (before == here->unknown) {
		move_frames(before, task);
		return;
	}
	task->depth = 0;
	push(stacks, core, (struct frame){ .slot = NO_SLOT, .caller = task->side });
	find_node(stacks, core, stacks->nodes[here->node].function, false);
	before->depth = 0;
}

/* Drop frames further down the stack than an address that was returned past. Interrupted frames stay. */
static void drop_returned(struct task *task, uint64_t slot)
{
	while (task->depth) {
		const struct frame *top = &task->frames[task->depth - 1];

		if (top->interrupt || top->slot > slot || !on_same_stack(top->slot, slot))
			return;
		task->depth--;
	}
}

void stacks__call(struct stacks *stacks, unsigned int core, uint64_t slot)
{
	struct stacks_core *here = &stacks->cores[core];

	stacks__store(stacks, core, slot);
	if (here->entering)
		identify_task(stacks, core, slot);
	drop_returned(here->task, slot);
	push(stacks, core, (struct frame){ .slot = slot, .caller = here->node });
}

void stacks__return(struct stacks *stacks, unsigned int core, uint64_t slot)
{
	struct stacks_core *here = &stacks->cores[core];
	struct task *task = here->task;

	here->function = 0;
	for (unsigned int i = task->depth; i-- > 0 && !task->frames[i].interrupt;)
		if (task->frames[i].slot == slot) {
			task->depth = i;
			return;
		}
	stacks->lost_returns++;
	drop_returned(task, slot);
}

void stacks__interrupt_return(struct stacks *stacks, unsigned int core, uint64_t slot)
{
	struct stacks_core *here = &stacks->cores[core];
	struct task *task = here->task;
	unsigned int depth = task->depth;

	while (depth && !task->frames[depth - 1].interrupt)
		depth--;
	if (!depth)
		return;
	/* Within an interrupt, sync_core() returns to itself through a frame that it built. */
	if (on_same_stack(task->frames[depth - 1].slot, slot) && slot < task->frames[depth - 1].slot)
		return;
	task->depth = depth - 1;
	here->function = 0;
	here->storing = false;
}

void stacks__leave(struct stacks *stacks, unsigned int core, uint64_t slot)
{
	struct stacks_core *here = &stacks->cores[core];
	struct task *task;

	if (here->task != here->unknown)
		return;
	task = task_of(stacks, slot >> STACK_SHIFT, here->unknown);
	if (task == here->unknown)
		return;
	move_frames(here->unknown, task);
	here->task = task;
}

void stacks__switch(struct stacks *stacks, unsigned int core, uint64_t slot)
{
	struct stacks_core *here = &stacks->cores[core];

	if (here->task->stack == slot >> STACK_SHIFT)
		return;
	here->task = task_of(stacks, slot >> STACK_SHIFT, here->task);
	here->function = 0;
	here->entering = false;
	here->storing = false;
}

void stacks__store(struct stacks *stacks, unsigned int core, uint64_t address)
{
	struct stacks_core *here = &stacks->cores[core];
	struct task *task = here->task;

	if (!here->storing)
		return;
	here->storing = false;
	if (task->depth && task->frames[task->depth - 1].interrupt)
		task->frames[task->depth - 1].slot = address;
}
