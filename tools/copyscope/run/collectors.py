"""The collectors of two hosts, spoken to as one: each command goes to both, and both answers become one."""

from collections.abc import Mapping

from copyscope.errors import RunError, UsageError
from copyscope.record import two_hosts
from copyscope.run.child import ANSWER_S, UNHEARD, Child, Message
from copyscope.topology import Side


class Collectors:
    """As one program. A report is that of those which still answer."""

    def __init__(self, of: Mapping[Side, Child]) -> None:
        self.of = of
        # Theirs, where they run: known when they are ready.
        self.pids: dict[Side, int] = {}

    @property
    def pid(self) -> int:
        """Of one of them, here: it may be an ssh."""
        return self.of["sender"].pid

    def fileno(self) -> int:
        """Of one of them, too."""
        return self.of["sender"].fileno()

    def send(self, line: str, event: str | None = None) -> None:
        for child in self.of.values():
            child.send(line, event)

    def expect(self, event: str, timeout_s: float = ANSWER_S) -> Message:
        answers = {side: child.expect(event, timeout_s) for side, child in self.of.items()}
        if event == "ready":
            self.pids = {side: said["pid"] for side, said in answers.items()}
        return two_hosts.join(answers)

    def ask(self, line: str, event: str, timeout_s: float = ANSWER_S) -> Message:
        if event != "report":
            self.send(line, event)
            return self.expect(event, timeout_s)
        answers, errors = {}, []
        for side, child in self.of.items():
            try:
                answers[side] = child.ask(line, event, timeout_s)
            except (RunError, UsageError) as error:
                errors.append(str(error))
        if not answers:
            raise RunError(errors[0])
        return {**two_hosts.join(answers), UNHEARD: errors}

    def end(self) -> None:
        for child in self.of.values():
            child.end()
