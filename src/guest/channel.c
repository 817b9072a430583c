// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/io.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "channel.h"

#define PORT 0xe9
#define SYMBOLS_PORT 0xea
#define LINE_MAX_BYTES 4096

int channel__open(void)
{
	return ioperm(PORT, 2, 1) ? -errno : 0;
}

static void put(unsigned short port, const char *text, unsigned long length)
{
	__asm__ volatile("rep outsb" : "+S"(text), "+c"(length) : "d"(port) : "memory");
}

void channel__write(const char *text, unsigned long length)
{
	put(PORT, text, length);
}

void channel__symbols(const char *text, unsigned long length)
{
	put(SYMBOLS_PORT, text, length);
}

static void print_line(const char *before, const char *format, va_list arguments)
{
	char line[LINE_MAX_BYTES];
	int used = snprintf(line, sizeof(line), "%s", before);
	int more = vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);

	used += more < (int)sizeof(line) - used - 1 ? more : (int)sizeof(line) - used - 2;
	line[used++] = '\n';
	channel__write(line, used);
}

void channel__say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line("", format, arguments);
	va_end(arguments);
}

void channel__fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line("failed ", format, arguments);
	va_end(arguments);
	channel__end();
}

/* With -no-reboot a reboot ends QEMU, and it saves the second that an ACPI power-off takes. */
void channel__end(void)
{
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}
