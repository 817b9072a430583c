// SPDX-License-Identifier: GPL-2.0
/* function_report.c - what became of the function hooks, for the record. */
#include <copyscope.skel.h>

#include "attach/recursion.h"
#include "counters.h"
#include "function_set.h"
#include "report/names.h"
#include "zerocopy.h"

void functions__add_hooks(const struct functions *functions, json_t *hooks)
{
	for (int row = 0; row < ROW_CNT; row++) {
		const struct attach *function = &functions->all[row];
		bool works = function_set__works(function);
		bool spare = function_set__is_spare(functions, row);
		bool used = works && !spare;
		const char *reason = !works ? function->reason : function_rows[row].kind == KIND_MARK ?
				     "the end of the copy is hooked itself" : "another way to see the copy is better here";
		enum category category = function_rows[row].category;

		json_array_append_new(hooks, json_pack("{s:s, s:s, s:s?, s:s, s:s, s:s?, s:s?, s:b}",
						       "id", function_rows[row].id, "instrument", "functions",
						       "category", category ? category_names[category] : NULL,
						       "symbol", function->symbol,
						       "state", state_names[spare ? STATE_UNUSED : function->state],
						       "how", used ? attach__how(function) : NULL,
						       "reason", used ? NULL : reason,
						       "required", function_rows[row].need == REQUIRED));
	}
	zerocopy__add_hooks(functions->zerocopy, hooks);
}

void functions__add_losses(const struct functions *functions, json_t *loss)
{
	for (int row = 0; row < ROW_CNT; row++)
		if (functions->all[row].state == STATE_ATTACHED)
			recursion__add_function(loss, function_rows[row].id, &functions->all[row]);
	zerocopy__add_loss(functions->zerocopy, loss);
}

json_t *functions__json(const struct functions *functions, const struct copyscope *skel)
{
	json_t *section = functions__cells_json(skel, functions->counters, functions->options.gate_one_in);

	zerocopy__add_json(functions->zerocopy, skel, section);
	return section;
}
