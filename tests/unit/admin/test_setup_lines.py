"""What setup did, in few lines."""

from __future__ import annotations

from tranrepl.admin.setup_lines import in_few_lines


def test_a_kind_of_thing_at_an_end_is_one_line_and_what_needs_attention_one_of_its_own() -> None:
    ends = ("Subscriber mart", "Subscriber lake")
    made = [f"created {it} at {end}" for end in ends for it in ("table a.x", "procedure p", "table a.y", "table a.z")]
    left = "left procedure sp_MSins_ax alone: it was edited by hand"
    keys = [f"created foreign key k{it} of table a.x at Subscriber mart" for it in range(24)]
    waiting = [f"article a.{it} of subscription mart: the next run takes its snapshot" for it in "xy"]
    assert in_few_lines([*made, left, *keys, "set REPLICA IDENTITY FULL on a.x", *waiting]) == [
        "created tables a.x, a.y, a.z at Subscriber mart",
        "created procedure p at Subscriber mart",
        "created tables a.x, a.y, a.z at Subscriber lake",
        "created procedure p at Subscriber lake",
        left,
        "created 24 foreign keys at Subscriber mart",
        "set REPLICA IDENTITY FULL on a.x",
        "subscription mart: the next run takes a snapshot of articles a.x, a.y",
    ]
