"""Runs PyTorch's test cases in a process of their own, so that they find no start method or fork server of ours.

Reads one word a line (isolated, continuous, restart) and answers with the seconds it took.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Until the input ends."""
    import pytorch_cases

    print("ready", flush=True)
    actions = {
        "isolated": lambda: pytorch_cases.seconds_of(pytorch_cases.Isolated),
        "continuous": lambda: pytorch_cases.seconds_of(pytorch_cases.Continuous),
        "restart": pytorch_cases.restart_continuous,
    }
    for line in sys.stdin:
        print(actions[line.strip()](), flush=True)
    pytorch_cases.restart_continuous()


if __name__ == "__main__":
    main()
