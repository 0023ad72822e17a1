"""Evidence in other people's formats: `distributed-benchmark/v1` out, foreign result files in. See docs/exchange.md."""
