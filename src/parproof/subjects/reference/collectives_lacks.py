"""Collectives that this subject does not provide: capability pattern → reason. No torch here."""

LACKS: dict[str, str] = {
    "point_to_point.any_source.zero_size": "gloo takes no empty message from any source: «offset < this->size»",
}
