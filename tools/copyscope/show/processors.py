"""On which CPUs a run was, and what was up with their clock: a line each, where there is something to say."""

from rich.text import Text

from copyscope.record.check import Whole
from copyscope.show.layout import wrap


def processor_lines(run: Whole, width: int) -> list[Text]:
    """Where both sides ran, and cautions, in yellow."""
    placed, clock = run.derived.placement, run.derived.machine_state.clock_sentence
    lines = _caution(clock, width) if clock else []
    if placed is None:
        return lines
    sentence = placed.sentence
    return [*(_caution(sentence, width) if placed.caution else wrap(sentence, width, indent=2)), *lines]


def _caution(text: str, width: int) -> list[Text]:
    return wrap(f"caution: {text}", width, indent=2, style="yellow")
