import io

from rocketpy.testing.progress import ProgressBars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_on_a_terminal_are_redrawn_in_place() -> None:
    terminal = Terminal()
    bars = ProgressBars({"sent": 10, "received": None}, terminal)
    bars.update(sent=5)
    first = terminal.getvalue()
    assert first.count("\n") == 2
    assert f"{'sent':>12} [{'#' * 15}{'.' * 15}] 5 of 10  " in first
    assert f"{'received':>12} [{'.' * 30}] 0  " in first
    bars.set_total("received", 2000)
    bars.update(sent=10, received=4000)  # too soon to be drawn
    assert terminal.getvalue() == first
    bars.close()
    second = terminal.getvalue().removeprefix(first)
    assert second.startswith("\x1b[2F")
    assert f"[{'#' * 30}] 4,000 of 2,000" in second


def test_elsewhere_it_is_a_line_now_and_then() -> None:
    stream = io.StringIO()
    bars = ProgressBars({"sent": 1000, "other": None}, stream)
    bars.update(sent=1)
    for done in range(2, 1000):
        bars.update(sent=done)
    bars.close()
    first, last = stream.getvalue().splitlines()[0], stream.getvalue().splitlines()[-1]
    assert first == "[    0 s] sent 1 of 1,000  other 0"
    assert last.endswith("sent 999 of 1,000  other 0")
    assert "\x1b" not in stream.getvalue()
