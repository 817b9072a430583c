// SPDX-License-Identifier: GPL-2.0-only
#include <stdarg.h>
#include <stdio.h>

#include "failure.h"

int failure__set(struct failure *failure, int err, const char *format, ...)
{
	va_list args;

	if (failure__happened(failure))
		return err;
	va_start(args, format);
	vsnprintf(failure->text, sizeof(failure->text), format, args);
	va_end(args);
	return err;
}
