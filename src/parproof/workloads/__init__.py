"""Inputs whose answers are known exactly: values that encode the rank and the position."""
