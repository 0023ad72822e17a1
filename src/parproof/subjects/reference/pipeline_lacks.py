"""What the reference does not do."""

LACKS = {
    "pipeline.dual_pipe_v*": "no first-principles order of it: its overlap of one forward with one backward is a"
    " matter of GPU streams",
    "pipeline.zero_bubble.2*": "its zero-bubble scheduler plays one stage on each rank; two stages: zero_bubble_v",
}
