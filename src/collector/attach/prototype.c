// SPDX-License-Identifier: GPL-2.0-only
#include "prototype.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <bpf/btf.h>

/* Return NULL if BTF does not have the function. */
static const struct btf_type *prototype_of(const struct btf *btf, const char *function)
{
	int id = btf ? btf__find_by_name_kind(btf, function, BTF_KIND_FUNC) : -ENOENT;
	const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(btf, id);

	type = type ? btf__type_by_id(btf, type->type) : NULL;
	return type && btf_is_func_proto(type) ? type : NULL;
}

int prototype__arguments(const struct btf *btf, const char *function)
{
	const struct btf_type *type = prototype_of(btf, function);

	return type ? btf_vlen(type) : -ENOENT;
}

static const char *argument_kind(const struct btf *btf, const struct btf_param *param)
{
	int id = btf__resolve_type(btf, param->type);
	const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(btf, id);

	if (type && btf_is_ptr(type))
		return "pointer";
	return type && (btf_is_int(type) || btf_is_any_enum(type)) ? "integer" : "value";
}

bool prototype__fits(const struct btf *btf, const char *function, const char *arguments, char *reason, size_t size)
{
	const struct btf_type *type = prototype_of(btf, function);
	char list[128], *save = NULL, *wanted;
	int number = 0;

	snprintf(list, sizeof(list), "%s", arguments);
	for (wanted = strtok_r(list, ", ", &save); type && wanted; wanted = strtok_r(NULL, ", ", &save)) {
		const struct btf_param *param = btf_params(type) + number++;
		const char *kind = *wanted == '*' ? "pointer" : "integer", *name = *wanted == '*' ? wanted + 1 : wanted;
		const char *btf_name;

		if (!strcmp(name, "_"))
			continue;
		if (number > btf_vlen(type)) {
			snprintf(reason, size, "its prototype changed: it has %d arguments, and argument %d (%s) is missing",
				 btf_vlen(type), number, name);
			return false;
		}
		btf_name = btf__name_by_offset(btf, param->name_off);
		/* If BTF has no name for the argument, compare only its kind. */
		if (!strcmp(kind, argument_kind(btf, param)) && (!btf_name || !*btf_name || !strcmp(btf_name, name)))
			continue;
		snprintf(reason, size, "its prototype changed: argument %d is the %s %s, not the %s %s", number,
			 argument_kind(btf, param), btf_name ?: "", kind, name);
		return false;
	}
	return true;
}
