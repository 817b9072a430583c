/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GUEST_CHANNEL_H
#define GUEST_CHANNEL_H

/*
 * Output of the guest to the host, as lines through a debug port of QEMU (isa-debugcon). The port needs no driver and
 * no interrupt, so the output adds nothing to the measurement, and a string of any length takes one instruction.
 */
int channel__open(void);
void channel__write(const char *text, unsigned long length);
void channel__say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Write symbols, to a second port. */
void channel__symbols(const char *text, unsigned long length);
/* Print the reason and turn the guest off. */
_Noreturn void channel__fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void channel__end(void);

#endif
