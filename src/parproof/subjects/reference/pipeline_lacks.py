"""What the reference does not do."""

LACKS = {
    "pipeline.zero_bubble.2*": "its zero-bubble scheduler plays one stage on each rank; two stages: zero_bubble_v",
}
