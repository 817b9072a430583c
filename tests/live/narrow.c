// SPDX-License-Identifier: GPL-2.0-only
/*
 * narrow.c - sends by 32-bit system calls. It uses no C library, so the compiler alone can build it.
 *
 * narrow ENTRY HOW COUNT BYTES
 *
 * ENTRY: int80 (in 32-bit and 64-bit programs), vdso (sysenter or syscall, in 32-bit programs) or x32 (in 64-bit programs). Open
 * file descriptors: 3, a connected TCP socket with SO_ZEROCOPY; 4, a file; 5 and 6, a pipe. It makes COUNT sends of BYTES each.
 * Exit status: 0 if each sent all bytes, 77 if the kernel lacks this entry.
 */
enum { SOCKET = 3, SOURCE, PIPE_OUT, PIPE_IN };

#define CANNOT 77
#define MOST_BYTES (1 << 16)
#define MSG_DONTWAIT 0x40
#define MSG_ERRQUEUE 0x2000
#define MSG_ZEROCOPY 0x4000000
#define ENOSYS 38
#define ENOBUFS 105
/* Words of the control message that hold the first and last completed send: in struct sock_extended_err, after struct cmsghdr. */
#define LOWEST_AT 5
#define HIGHEST_AT 6
#define AT_SYSINFO 32
#define X32 0x40000000
/* Numbers of socketcall(2), include/uapi/linux/net.h. */
#define SYS_SEND 9
#define SYS_SENDMSG 16
#define SYS_RECVMSG 17

typedef unsigned int word;
struct buffer { word base, length; };
struct header { word name, name_length, vector, count, control, control_length, flags; };
struct message { struct header header; word length; };

/* Static data. The program is linked at fixed addresses, so they are below 4 GiB in 64-bit programs, too. */
static char memory[MOST_BYTES];
static word told[128], completed;
static struct buffer buffers[2];
static struct message messages[2];
static struct header asked;
static word words[6], narrow_offset;
static unsigned long long offset;
static enum { INT80, VDSO, X32_ENTRY } entry;
unsigned long vdso;

static word at(const void *pointer)
{
	return (word)(unsigned long)pointer;
}

static int by_int80(word nr, word a, word b, word c, word d, word e)
{
	int ret;

	/* The sixth argument is 0. In a 64-bit program the kernel does not preserve r8 to r11. */
#ifdef __x86_64__
	asm volatile("push %%rbp; xor %%ebp, %%ebp; int $0x80; pop %%rbp"
		     : "=a"(ret) : "0"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory", "r8", "r9", "r10", "r11");
#else
	asm volatile("push %%ebp; xor %%ebp, %%ebp; int $0x80; pop %%ebp"
		     : "=a"(ret) : "0"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory");
#endif
	return ret;
}

static int by_vdso(word nr, word a, word b, word c, word d, word e)
{
	int ret = -ENOSYS;

#ifdef __i386__
	asm volatile("push %%ebp; xor %%ebp, %%ebp; call *vdso; pop %%ebp" : "=a"(ret) : "0"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory");
#else
	(void)nr, (void)a, (void)b, (void)c, (void)d, (void)e;
#endif
	return ret;
}

static int by_x32(unsigned long nr, word a, word b, word c, word d, word e)
{
	long ret = -ENOSYS;

#ifdef __x86_64__
	register unsigned long fourth asm("r10") = d, fifth asm("r8") = e, sixth asm("r9") = 0;

	asm volatile("syscall" : "=a"(ret) : "0"(nr | X32), "D"((long)a), "S"((long)b), "d"((long)c), "r"(fourth), "r"(fifth), "r"(sixth)
		     : "rcx", "r11", "memory");
#else
	(void)nr, (void)a, (void)b, (void)c, (void)d, (void)e;
#endif
	return ret;
}

/* Make a system call with its i386 number or its x32 number. */
static int call(word nr, word nr_x32, word a, word b, word c, word d, word e)
{
	switch (entry) {
	case X32_ENTRY:
		return by_x32(nr_x32, a, b, c, d, e);
	case VDSO:
		return by_vdso(nr, a, b, c, d, e);
	default:
		return by_int80(nr, a, b, c, d, e);
	}
}

/* Make a socket call: by socketcall(2), which x32 lacks. */
static int call_socket(word which, word nr_x32, word a, word b, word c, word d)
{
	if (entry == X32_ENTRY)
		return call(0, nr_x32, a, b, c, d, 0);
	words[0] = a;
	words[1] = b;
	words[2] = c;
	words[3] = d;
	return call(102, 0, which, at(words), 0, 0, 0);
}

static void leave(int status)
{
	for (;;)
		call(1, 60, status, 0, 0, 0, 0);
}

static int same(const char *a, const char *b)
{
	for (; *a == *b; a++, b++)
		if (!*a)
			return 1;
	return 0;
}

static word number(const char *text)
{
	word value = 0;

	for (; *text; text++)
		value = 10 * value + *text - '0';
	return value;
}

/* Read all completions, so that the kernel has room for the next. */
static void read_completions(void)
{
	for (;;) {
		asked = (struct header){ .control = at(told), .control_length = sizeof(told) };
		if (call_socket(SYS_RECVMSG, 519, SOCKET, at(&asked), MSG_ERRQUEUE | MSG_DONTWAIT, 0) < 0)
			return;
		completed += told[HIGHEST_AT] - told[LOWEST_AT] + 1;
	}
}

static int send_zerocopy(word bytes)
{
	int ret;

	do {
		ret = call_socket(SYS_SEND, 44, SOCKET, at(memory), bytes, MSG_ZEROCOPY);
		read_completions();
	} while (ret == -ENOBUFS);
	return ret;
}

static int send_spliced(word bytes)
{
	buffers[0] = (struct buffer){ at(memory), bytes };
	if (call(316, 532, PIPE_IN, at(buffers), 1, 0, 0) != (int)bytes)
		return -1;
	return call(313, 275, PIPE_OUT, 0, SOCKET, 0, bytes);
}

static int send_several(void)
{
	int ret = call(345, 538, SOCKET, at(messages), 2, 0, 0);

	return ret == 2 ? (int)(messages[0].length + messages[1].length) : ret;
}

static int send_once(const char *how, word bytes)
{
	narrow_offset = offset = 0;
	buffers[0] = (struct buffer){ at(memory), bytes / 2 };
	buffers[1] = (struct buffer){ at(memory) + bytes / 2, bytes - bytes / 2 };
	messages[0].header = (struct header){ .vector = at(buffers), .count = 2 };
	if (same(how, "write"))
		return call(4, 1, SOCKET, at(memory), bytes, 0, 0);
	if (same(how, "writev"))
		return call(146, 516, SOCKET, at(buffers), 2, 0, 0);
	if (same(how, "sendfile"))
		return call(187, 40, SOCKET, SOURCE, at(entry == X32_ENTRY ? (void *)&offset : &narrow_offset), bytes, 0);
	if (same(how, "sendfile64"))
		return call(239, 40, SOCKET, SOURCE, at(&offset), bytes, 0);
	if (same(how, "send"))
		return call_socket(SYS_SEND, 44, SOCKET, at(memory), bytes, 0);
	if (same(how, "sendto"))
		return call(369, 44, SOCKET, at(memory), bytes, 0, 0);
	if (same(how, "sendmsg"))
		return call_socket(SYS_SENDMSG, 518, SOCKET, at(&messages[0].header), 0, 0);
	if (same(how, "zerocopy"))
		return send_zerocopy(bytes);
	if (same(how, "splice"))
		return send_spliced(bytes);
	messages[0].header = (struct header){ .vector = at(buffers), .count = 1 };
	messages[1].header = (struct header){ .vector = at(buffers + 1), .count = 1 };
	return same(how, "sendmmsg") ? send_several() : -1;
}

__attribute__((used)) static void begin(unsigned long *stack)
{
	char **argv = (char **)(stack + 1);
	unsigned long *past = stack + 1 + stack[0] + 1;
	word count, bytes;
	int ret;

	while (*past++)
		;
	for (; *past; past += 2)
		if (*past == AT_SYSINFO)
			vdso = past[1];
	if (stack[0] != 5)
		leave(2);
	entry = same(argv[1], "x32") ? X32_ENTRY : same(argv[1], "vdso") ? VDSO : INT80;
	count = number(argv[3]);
	bytes = number(argv[4]);
	for (word i = 0; i < count; i++) {
		ret = send_once(argv[2], bytes);
		if (ret == -ENOSYS) {
			entry = INT80;
			leave(CANNOT);
		}
		if (ret != (int)bytes)
			leave(1);
	}
	while (same(argv[2], "zerocopy") && completed < count)
		read_completions();
	leave(0);
}

#ifdef __x86_64__
asm(".globl _start\n_start: mov %rsp, %rdi\n\tand $-16, %rsp\n\tcall begin\n");
#else
asm(".globl _start\n_start: mov %esp, %eax\n\tand $-16, %esp\n\tsub $12, %esp\n\tpush %eax\n\tcall begin\n");
#endif
