"""What runs here for each host: brings the bundle into ansible's temporary directory there, then asks."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """The task `copyscope_ask`."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> Any:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if arguments["bundle"]:
            shell = self._connection._shell
            if shell.tmpdir is None:
                self._make_tmp_path()
            there = shell.join_path(shell.tmpdir, "bundle")
            self._transfer_file(arguments["bundle"], there)
            self._fixup_perms2((shell.tmpdir, there))
            arguments["bundle"] = there
        try:
            return self._execute_module(
                module_name="copyscope_ask", module_args=arguments, task_vars=task_vars
            )
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
