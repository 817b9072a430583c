// SPDX-License-Identifier: GPL-2.0-only
/* Tests of the simulator's shadow of the kernel's call stacks (stacks.h), with traces as QEMU executes them. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "../../src/simulator/stacks.h"
#include "check.h"

/* Each function is one letter. Each stack has 16 KiB. */
#define STACK_A 0x10000ull
#define STACK_B 0x20000ull
#define IRQ_STACK 0x30000ull
#define TRAMPOLINE 0x40000ull

static struct stacks stacks;

#define WITH_STACKS(check, sentence) \
	static void check(void); \
	TEST(sentence) \
	{ \
		CHECK_EQUAL(stacks__open(&stacks, 2), 0); \
		check(); \
		stacks__close(&stacks); \
	} \
	static void check(void)

static void block(char function)
{
	stacks__enter(&stacks, 0, (uint64_t)function, BLOCK_KERNEL, true);
}

static void user(void)
{
	stacks__enter(&stacks, 0, 0, BLOCK_USER, false);
}

static void call(uint64_t slot, char function)
{
	stacks__call(&stacks, 0, slot);
	block(function);
}

static void back(uint64_t slot, char function)
{
	stacks__return(&stacks, 0, slot);
	block(function);
}

static void interrupt(char function, uint64_t first_store)
{
	stacks__enter(&stacks, 0, (uint64_t)function, BLOCK_INTERRUPT, true);
	stacks__store(&stacks, 0, first_store);
}

/* Enter a system call of the task with this stack: S calls D (do_syscall_64). */
static void system_call(uint64_t stack)
{
	stacks__enter(&stacks, 0, 'S', BLOCK_SYSCALL, true);
	call(stack + 0x3f50, 'D');
}

/* Return the current stack, leaf first. A final `?` means that the start of the stack was not seen. */
static const char *now(void)
{
	static char text[64];
	uint32_t index = stacks.cores[0].node;
	size_t length = 0;

	for (; !node__is_root(&stacks, index) && length < 60; index = stacks.nodes[index].parent)
		text[length++] = (char)stacks.nodes[index].function;
	if (index >= SIDE_CNT)
		text[length++] = '?';
	text[length] = '\0';
	return text;
}

#define CHECK_NOW(expected)                                                                \
	do {                                                                               \
		if (strcmp(now(), expected)) {                                             \
			printf("  %s:%d: stack is %s\n", __FILE__, __LINE__, now());       \
			check_failed = true;                                               \
			return;                                                            \
		}                                                                          \
	} while (0)

/* If a command's functions are known, an interrupt or a system call still counts user mode as its root. */
WITH_STACKS(known_functions_of_user_mode, "call stacks: known functions of user mode")
{
	stacks__enter(&stacks, 0, 'm', BLOCK_USER, true);
	CHECK_NOW("m");
	interrupt('I', 0x13fc8);
	CHECK_NOW("I");
	stacks__interrupt_return(&stacks, 0, 0x13fd0);
	stacks__enter(&stacks, 0, 'n', BLOCK_USER, false);
	CHECK_NOW("n");
	system_call(STACK_A);
	CHECK_NOW("DS");
	user();
	CHECK_NOW("");
}

static uint64_t calls_of(char function)
{
	uint64_t calls = 0;

	for (uint32_t i = 0; i < stacks.node_count; i++)
		if (stacks.nodes[i].function == (uint64_t)function)
			calls += stacks.nodes[i].counts.of[COUNT_calls];
	return calls;
}

WITH_STACKS(calls_and_returns, "call stacks: calls and returns")
{
	user();
	CHECK_NOW("");
	system_call(STACK_A);
	CHECK_NOW("DS");
	call(0x13e00, 'a');
	CHECK_NOW("aDS");
	call(0x13d00, 'b');
	call(0x13c00, 'b');
	CHECK_NOW("bbaDS");
	back(0x13c00, 'b');
	back(0x13d00, 'a');
	CHECK_NOW("aDS");
	/* Continue in the middle of the same function. */
	stacks__enter(&stacks, 0, 'a', BLOCK_KERNEL, false);
	call(0x13d00, 'b');
	CHECK_NOW("baDS");
	user();
	CHECK_NOW("");
	CHECK_EQUAL(calls_of('a'), 1);
	CHECK_EQUAL(calls_of('b'), 3);
	CHECK_EQUAL(calls_of('S'), 1);
	CHECK_EQUAL(stacks.lost_returns, 0);
}

/* After a jumps to b, the frame belongs to b, and b is the caller of its calls. */
WITH_STACKS(jumps, "call stacks: a function that jumps becomes the other")
{
	system_call(STACK_A);
	call(0x13e00, 'a');
	block('b');
	CHECK_NOW("bDS");
	call(0x13d00, 'c');
	CHECK_NOW("cbDS");
	back(0x13d00, 'b');
	CHECK_NOW("bDS");
	back(0x13e00, 'D');
	CHECK_NOW("DS");
}

/* The thunk of a retpoline makes a call, replaces the return address of this call by the target, and returns to it. */
WITH_STACKS(retpoline, "call stacks: a retpoline")
{
	system_call(STACK_A);
	call(0x13e00, 'T');
	call(0x13df8, 'T');
	back(0x13df8, 'a');
	CHECK_NOW("aDS");
	call(0x13d00, 'b');
	CHECK_NOW("baDS");
	back(0x13d00, 'a');
	back(0x13e00, 'D');
	CHECK_NOW("DS");
	CHECK_EQUAL(stacks.lost_returns, 0);
}

/* Return buffer stuffing: 32 calls that never return, then the stack pointer is reset. */
WITH_STACKS(stuffing, "call stacks: calls that nothing returns from")
{
	system_call(STACK_A);
	call(0x13e00, 'a');
	for (unsigned int i = 0; i < 32; i++)
		call(0x13d00 - 8 * i, 'a');
	call(0x13d00, 'b');
	CHECK_NOW("baaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaDS");
	back(0x13d00, 'a');
	CHECK_NOW("aDS");
	call(0x13d00, 'c');
	CHECK_NOW("caDS");
	back(0x13d00, 'a');
	back(0x13e00, 'D');
	CHECK_NOW("DS");
}

WITH_STACKS(interrupts, "call stacks: interrupts, their stacks, and a return to itself")
{
	system_call(STACK_A);
	call(0x13e00, 'a');
	interrupt('I', 0x13dc0);
	CHECK_NOW("IaDS");
	call(0x13db8, 'e');
	back(0x13db8, 'I');
	/* Softirqs run on a separate stack. */
	call(0x13d00, 'h');
	call(IRQ_STACK + 0x3ff0, 's');
	CHECK_NOW("shIaDS");
	interrupt('J', IRQ_STACK + 0x3f00);
	CHECK_NOW("JshIaDS");
	/* sync_core() returns to itself through a frame that it builds below the frame of the interrupt. */
	stacks__interrupt_return(&stacks, 0, IRQ_STACK + 0x3e00);
	block('J');
	CHECK_NOW("JshIaDS");
	stacks__interrupt_return(&stacks, 0, IRQ_STACK + 0x3f08);
	block('s');
	CHECK_NOW("shIaDS");
	back(IRQ_STACK + 0x3ff0, 'h');
	back(0x13d00, 'I');
	CHECK_NOW("IaDS");
	stacks__interrupt_return(&stacks, 0, 0x13dc8);
	block('a');
	CHECK_NOW("aDS");
	back(0x13e00, 'D');
	CHECK_NOW("DS");
	user();
	/* A device interrupt enters through a stub that stores its number. */
	system_call(STACK_A);
	stacks__enter(&stacks, 0, 'V', BLOCK_INTERRUPT_STUB, false);
	stacks__store(&stacks, 0, 0x13dc0);
	CHECK_NOW("VDS");
	stacks__enter(&stacks, 0, 'I', BLOCK_INTERRUPT, true);
	CHECK_NOW("IDS");
	stacks__interrupt_return(&stacks, 0, 0x13dc8);
	block('D');
	CHECK_NOW("DS");
	user();
	/* An NMI returns through a copy of its frame at a lower address. */
	system_call(STACK_A);
	stacks__enter(&stacks, 0, 'N', BLOCK_NMI, true);
	stacks__store(&stacks, 0, 0x13dc0);
	CHECK_NOW("NDS");
	stacks__interrupt_return(&stacks, 0, 0x13d00);
	block('D');
	CHECK_NOW("DS");
	user();
	/* error_entry returns through a return address that it has moved to the task's stack. */
	interrupt('I', TRAMPOLINE + 0x3fc0);
	CHECK_NOW("I");
	call(TRAMPOLINE + 0x3fb8, 'e');
	stacks__return(&stacks, 0, 0x13f48);
	block('I');
	call(0x13f48, 'h');
	user();
	CHECK_NOW("");
	CHECK_EQUAL(stacks.lost_returns, 1);
}

/* A task continues where it left off, and keeps its side, also on another core. */
WITH_STACKS(switches, "call stacks: tasks, sides and cores")
{
	user();
	stacks__set_side(&stacks, 0, SIDE_SENDER);
	system_call(STACK_A);
	CHECK_EQUAL(stacks.nodes[stacks.cores[0].node].side, SIDE_SENDER);
	call(0x13e00, 'w');
	call(0x13d00, 'X');
	stacks__switch(&stacks, 0, 0x23d80);
	block('Y');
	CHECK_NOW("Y?");
	stacks__return(&stacks, 0, 0x23da0);
	block('k');
	CHECK_NOW("k?");
	CHECK_EQUAL(stacks.nodes[stacks.cores[0].node].side, SIDE_OTHER);
	user();
	stacks__set_side(&stacks, 0, SIDE_RECEIVER);
	system_call(STACK_B);
	CHECK_NOW("DS");
	CHECK_EQUAL(stacks.nodes[stacks.cores[0].node].side, SIDE_RECEIVER);
	call(0x23e00, 'w');
	call(0x23d00, 'X');
	stacks__switch(&stacks, 0, 0x13cc0);
	stacks__switch(&stacks, 0, 0x13cc8);
	block('Y');
	CHECK_NOW("YwDS");
	CHECK_EQUAL(stacks.nodes[stacks.cores[0].node].side, SIDE_SENDER);
	back(0x13d00, 'w');
	back(0x13e00, 'D');
	CHECK_NOW("DS");
	/* The other task continues on another core. */
	stacks__enter(&stacks, 1, 'X', BLOCK_KERNEL, false);
	stacks__switch(&stacks, 1, 0x23cc0);
	stacks__return(&stacks, 1, 0x23d00);
	stacks__enter(&stacks, 1, 'w', BLOCK_KERNEL, false);
	CHECK_EQUAL(stacks.nodes[stacks.cores[1].node].side, SIDE_RECEIVER);
	CHECK_EQUAL(stacks.nodes[stacks.cores[1].node].function, 'w');
	stacks__forget_tasks(&stacks);
	system_call(STACK_A);
	CHECK_EQUAL(stacks.nodes[stacks.cores[0].node].side, SIDE_OTHER);
}

/* A task is interrupted and switched out before its first system call identifies it. */
WITH_STACKS(switched_unknown, "call stacks: a task that leaves before it is known")
{
	user();
	stacks__set_side(&stacks, 0, SIDE_SENDER);
	interrupt('I', TRAMPOLINE + 0x3fc0);
	call(0x13f48, 'w');
	call(0x13d00, 'X');
	stacks__leave(&stacks, 0, 0x13cf8);
	stacks__switch(&stacks, 0, 0x23d80);
	user();
	CHECK_EQUAL(stacks.nodes[stacks.cores[0].node].side, SIDE_OTHER);
	system_call(STACK_B);
	call(0x23d00, 'X');
	stacks__switch(&stacks, 0, 0x13cc0);
	block('Y');
	CHECK_NOW("YwI");
	back(0x13d00, 'w');
	CHECK_EQUAL(stacks.nodes[stacks.cores[0].node].side, SIDE_SENDER);
	user();
	CHECK_EQUAL(stacks.nodes[stacks.cores[0].node].side, SIDE_SENDER);
}

WITH_STACKS(too_deep, "call stacks: too deep")
{
	system_call(STACK_A);
	for (unsigned int i = 0; i < 1000; i++)
		call(0x13e00 - 8 * i, 'r');
	CHECK(stacks.lost_calls > 0);
	for (unsigned int i = 1000; i-- > 1;)
		back(0x13e00 - 8 * i, 'r');
	back(0x13e00, 'D');
	CHECK_NOW("DS");
}

/* With many functions and tasks the tables grow, and lookups still find the right entries. */
WITH_STACKS(many, "call stacks: many functions and tasks")
{
	for (unsigned int round = 0; round < 2; round++)
		for (uint64_t task = 0; task < 300; task++) {
			uint64_t stack = 0x100000 + (task << 14);

			user();
			stacks__switch(&stacks, 0, stack);
			stacks__enter(&stacks, 0, 'S', BLOCK_SYSCALL, true);
			for (uint64_t i = 0; i < 40; i++) {
				stacks__call(&stacks, 0, stack + 0x3000 - 16 * i);
				stacks__enter(&stacks, 0, 1000 + 40 * task + i, BLOCK_KERNEL, true);
				stacks__counts(&stacks, 0)->of[COUNT_instructions] += 5;
			}
		}
	CHECK_EQUAL(stacks.task_count, 300);
	CHECK_EQUAL(stacks.node_count, 2 * SIDE_CNT + 1 + 300 * 40);
	for (uint32_t i = 2 * SIDE_CNT; i < stacks.node_count; i++)
		CHECK_EQUAL(stacks.nodes[i].counts.of[COUNT_instructions],
			    stacks.nodes[i].function == 'S' ? 0 : 10);
	stacks__zero_counts(&stacks);
	CHECK_EQUAL(calls_of('S'), 0);
}
