"""Lines of a chart are distinguishable without colors, also where they cover each other."""

from __future__ import annotations

from evenlag.html.charts import Line, coinciding, line_styles

AT = (0.0, 1.0, 2.0)


def test_lines_that_are_one_on_the_page_are_found() -> None:
    lines = [
        Line(AT, (0, 500, 1000)),
        Line(AT, (0, 505, 1000)),
        Line(AT, (0, 520, 1000)),
        Line(AT, (0, 500, None)),
        Line((0.0, 1.0), (0, 500)),
    ]
    assert coinciding(lines) == [[0, 1]]
    assert coinciding([Line(AT, (None, None, None))] * 2) == [[0, 1]]
    assert coinciding([]) == []


def test_coinciding_lines_take_turns_and_leave_no_gap() -> None:
    styles = line_styles([Line(AT, (0, 1, 2))] * 3 + [Line(AT, (5, 5, 5))])
    length = styles[0].dashes[0]
    assert [style.dashes for style in styles[:3]] == [(length, 2 * length)] * 3
    # The pattern repeats after three dashes: together the three lines cover everything once.
    starts = sorted((-style.offset) % (3 * length) for style in styles[:3])
    assert starts == [0, length, 2 * length]
    assert len({style.marker for style in styles}) == 4


def test_eight_lines_have_eight_shapes() -> None:
    lines = [Line(AT, (number, 10 * number, number)) for number in range(8)]
    assert len({style.marker for style in line_styles(lines)}) == 8
