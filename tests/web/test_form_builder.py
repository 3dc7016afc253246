"""The builder of a form: it writes into two fields or one, leaves all others, and nothing is lost by what is wrong."""

from dataclasses import replace

from nats_scheduler.web.change_pages import Form
from nats_scheduler.web.form_builder import PATTERN, POLICY, Builder, builder_in

TYPED = {"pattern": "@every 1h", "time_zone": "", "policies": "note: kept", "target": "O.out"}
CHOSEN = {
    "build_kind": ["week"],
    "build_time": [" 09:30 "],
    "build_zone": ["Europe/Berlin"],
    "build_weekday": ["sat", "sun"],
    "build_policy": ["X-Limit"],
    "build_value": ["3"],
}


def sent(**other: list[str]) -> Builder:
    """Return the builder of a form in which a pattern and a policy are chosen."""
    return builder_in(Form({**CHOSEN, **other}))


def test_each_button_writes_its_fields_and_no_other() -> None:
    builder, fields = sent().written(PATTERN, TYPED, TYPED, "adr51")
    assert fields == {**TYPED, "pattern": "0 30 9 * * sat,sun", "time_zone": "Europe/Berlin"}
    assert (builder.choices, builder.policy, builder.value) == (sent().choices, "X-Limit", "3")
    assert (builder.is_open, builder.built is not None and builder.built.pattern) == (True, fields["pattern"])
    builder, fields = sent().written(POLICY, TYPED, TYPED, "adr51")
    assert fields == {**TYPED, "policies": "note: kept\nX-Limit: 3"}
    assert (builder.choices, builder.policy, builder.value) == (sent().choices, "", "")
    assert (builder.is_open, builder.line) == (True, "X-Limit: 3")


def test_no_other_button_writes_anything() -> None:
    written = {**TYPED, "pattern": "0 30 9 * * sat,sun", "time_zone": "Europe/Berlin"}
    none: dict[str, list[str]] = {"build_policy": [""], "build_value": [""]}
    for step in ("preview", "store", ""):
        assert sent().written(step, TYPED, TYPED, "adr51") == (replace(sent(), is_open=True), TYPED)
        assert sent(**none).written(step, written, TYPED, "adr51") == (sent(**none), written)


def test_what_is_wrong_leaves_the_fields_and_the_choices_as_they_are() -> None:
    wrongs: list[tuple[str, dict[str, list[str]], str]] = [
        (PATTERN, {"build_time": ["noon"], "build_weekday": ["sat", "x"]}, "time"),
        (POLICY, {"build_value": ["many"]}, "value"),
    ]
    for step, other, name in wrongs:
        builder, fields = sent(**other).written(step, TYPED, TYPED, "adr51")
        assert fields == TYPED
        assert builder.wrong is not None
        assert name in builder.wrong
        assert builder.is_open
        assert (builder.choices, builder.policy, builder.value) == (
            *(sent(**other).choices, sent(**other).policy, sent(**other).value),
        )
