"""What torch does not offer for overlap, with the reason. No torch here."""

LACKS = {
    "overlap.summarize": "torch records traces and leaves the reading of exposed time to others",
    "overlap.mitigate": "torch gives no advice on what to change",
}
