"""Marks of a chart: no label covers another one or a line, in a plan of lanes and in a drawn chart."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evenlag.html.charts import (
    MAX_LANES,
    ChartMark,
    LabelPlace,
    Size,
    draw_marks,
    new_figure,
    place_labels,
    svg,
)

ROOM = 300.0
MARKS = st.lists(st.tuples(st.floats(0, ROOM), st.floats(10, 90)), max_size=12).map(sorted)


def test_marks_far_from_each_other_share_the_first_lane() -> None:
    assert place_labels([10, 100, 200], [50, 50, 50], ROOM) == [LabelPlace(0, is_left=False)] * 3


def test_a_mark_within_the_label_before_it_goes_one_lane_down() -> None:
    assert place_labels([10, 15, 20], [50, 50, 50], ROOM) == [
        LabelPlace(0, is_left=False),
        LabelPlace(1, is_left=False),
        LabelPlace(2, is_left=False),
    ]


def test_at_the_right_edge_labels_are_to_the_left_and_the_last_is_on_top() -> None:
    assert place_labels([280, 290], [50, 50], ROOM) == [
        LabelPlace(1, is_left=True),
        LabelPlace(0, is_left=True),
    ]


def test_a_mark_without_room_has_no_label() -> None:
    places = place_labels([10, 11, 12, 13, 14], [50] * 5, ROOM)
    assert places == [*(LabelPlace(lane, is_left=False) for lane in range(MAX_LANES)), None]


@settings(max_examples=300, deadline=None)
@given(MARKS)
def test_no_label_covers_another_one_or_a_line(marks: list[tuple[float, float]]) -> None:
    found = place_labels([place for place, _ in marks], [width for _, width in marks], ROOM)
    shown = [
        (place - width, place, place, at.lane) if at.is_left else (place, place + width, place, at.lane)
        for (place, width), at in zip(marks, found, strict=True)
        if at is not None
    ]
    for number, (start, end, _, lane) in enumerate(shown):
        assert start >= 0
        assert end <= ROOM
        for other, (other_start, other_end, other_place, other_lane) in enumerate(shown):
            if number == other:
                continue
            if lane == other_lane:
                assert end <= other_start or other_end <= start
            if other_lane < lane:
                # The other's line goes down from its lane through this one.
                assert not start <= other_place <= end


def _boxes(figure: Any, axes: Any) -> list[Any]:
    figure.draw_without_rendering()
    return [text.get_window_extent() for text in axes.texts]


def test_in_a_chart_labels_are_above_the_data_and_do_not_overlap() -> None:
    for is_wide, width in ((True, 9.9), (False, 4.3)):
        figure, axes = new_figure(Size(width, 3.0, is_wide))
        axes.plot([0, 100], [0, 50])
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 50)
        marks = [
            ChartMark(40, "published", "v"),
            ChartMark(41, "followed", "o"),
            ChartMark(99, "expired", "s"),
        ]
        draw_marks(figure, axes, marks)
        boxes = _boxes(figure, axes)
        assert len(boxes) == 3
        data_top = axes.transData.transform((0, 50))[1]
        area = axes.get_window_extent()
        for number, box in enumerate(boxes):
            assert box.y0 >= data_top
            assert area.x0 <= box.x0
            assert box.x1 <= area.x1 + 1
            assert not any(box.overlaps(other) for other in boxes[number + 1 :])


def test_marks_of_one_kind_at_one_place_share_a_label_and_a_hundred_still_fit() -> None:
    figure, axes = new_figure(Size(4.3, 3.0))
    axes.set_xlim(0, 100)
    marks = [ChartMark(number / 2, "published", "v") for number in range(100)]
    draw_marks(figure, axes, [ChartMark(0, "followed", "o"), ChartMark(0, "followed", "o"), *marks])
    drawn = svg(figure, "x", "x")
    assert "2 followed" in drawn
    assert 0 < len(re.findall("published", drawn)) < 100
    boxes = _boxes(figure, axes)
    assert not any(box.overlaps(other) for n, box in enumerate(boxes) for other in boxes[n + 1 :])
